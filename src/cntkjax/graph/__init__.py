"""Structure of a computation: variables, axes, functions, editing. Pure Python and NumPy, no jax."""
