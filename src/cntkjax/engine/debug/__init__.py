"""Checks and timings that run beside a program, on the same minibatch."""
