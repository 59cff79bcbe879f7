"""Evaluations of few samples by a library in C, `steps.c`, with packed weights and threads of its own."""
