"""Layout of sequences, graph to JAX, programs: everything that computes."""
