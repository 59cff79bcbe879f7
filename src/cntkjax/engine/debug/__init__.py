"""Checked mode and node timing, which run beside a program, on the same minibatch."""
