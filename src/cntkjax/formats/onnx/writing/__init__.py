"""ONNX models written."""
