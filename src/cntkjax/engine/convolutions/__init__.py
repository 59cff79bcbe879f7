"""Convolutions of compiled programs on the CPU, by a library in C, `convolution.c`, or by oneDNN."""
