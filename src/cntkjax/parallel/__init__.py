"""Processes that train together: collective operations over MPI, and the strategies that use them."""
