"""Models over HTTP, by the Open Inference Protocol (KServe v2)."""
