"""CNTK's v2 model files and checkpoints."""
