"""From a plan to JAX: values, nodes, products, loops as scans with a backward pass of their own."""
