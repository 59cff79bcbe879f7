"""XLA and its platforms: compiler options, the compilation cache, memory, devices."""
