"""Running a plan: programs, minibatches, results, gradients, Python code of users."""

from ..xla.allocator import keep_freed_memory

# Here, before any program can run, because it has to happen before XLA has threads: glibc's setting for one heap holds
# only for threads that have not allocated yet. CNTKJAX_KEEP_MEMORY=0 leaves glibc alone.
keep_freed_memory()
