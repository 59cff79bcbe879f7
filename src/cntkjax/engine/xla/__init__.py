"""What is particular to XLA and its platforms: compiler options, the cache, memory, devices."""
