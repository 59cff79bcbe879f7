"""Structure of a computation: variables, axes, functions, and their editing. Pure Python and NumPy, no jax."""
