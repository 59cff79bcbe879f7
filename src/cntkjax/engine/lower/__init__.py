"""Lowering of a plan to JAX: values, nodes, products, and loops as scans with their own backward pass."""
