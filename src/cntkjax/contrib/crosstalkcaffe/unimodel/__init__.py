"""Networks as lists of layers, and as functions."""
