"""ONNX models read."""
