"""What is computed, in order: a graph opened, its loops found, compositions replaced by fused operations."""
