"""Compiled programs: packing a minibatch, running it, results, gradients, evaluation in stages."""
