"""Convolutions and products of the CPU by oneDNN, where its extra is installed (`pip install cntkjax[onednn]`)."""
