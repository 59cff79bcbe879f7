"""ONNX models: what CNTK has as functions, read and written."""
