"""Measures this package against CNTK 2.7, PyTorch and hand-written JAX: see README.md beside this file."""
