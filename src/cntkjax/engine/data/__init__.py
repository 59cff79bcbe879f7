"""Minibatches as arrays: ragged data, layouts of sequences in grids, packing, sparse data."""
