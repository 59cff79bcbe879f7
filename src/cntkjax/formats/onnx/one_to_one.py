"""Operations that are one ONNX operation on the same operands: one row each, which serves writing and reading.

A row maps the name of a primitive to that of the ONNX operation. Others have a function for each direction, registered
by `writing.table.writes` and `reading.table.reads`.
"""

UNARY = {
    "Negate": "Neg",
    "Tanh": "Tanh",
    "ReLU": "Relu",
    "Exp": "Exp",
    "Log": "Log",
    "Sqrt": "Sqrt",
    "Floor": "Floor",
    "Abs": "Abs",
    "Reciprocal": "Reciprocal",
    "StableSigmoid": "Sigmoid",
    "Sin": "Sin",
    "Cos": "Cos",
    "Tan": "Tan",
    "Asin": "Asin",
    "Acos": "Acos",
    "Atan": "Atan",
    "Sinh": "Sinh",
    "Cosh": "Cosh",
    "Asinh": "Asinh",
    "Atanh": "Atanh",
}
BINARY = {
    "Plus": "Add",
    "Minus": "Sub",
    "ElementTimes": "Mul",
    "Pow": "Pow",
}
COMPARISONS = {
    "Less": "Less",
    "Greater": "Greater",
    "LessEqual": "LessOrEqual",
    "GreaterEqual": "GreaterOrEqual",
    "Equal": "Equal",
}
LOGIC = ("And", "Or", "Xor", "Not")  # names of blocks and of ONNX operations
