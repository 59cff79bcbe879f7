"""Writes small models in the format of CNTK 1, for the tests of its reader."""

import struct

import numpy as np

LISTS = ("Feature", "Label", "Criterion", "Eval", "Output")


def text(value):
    return (value + "\0").encode("utf-16-le")


def int32(*values):
    return struct.pack(f"<{len(values)}i", *values)


def uint64(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def double(*values):
    return struct.pack(f"<{len(values)}d", *values)


def shape(*dims):
    return int32(len(dims), *dims)


def flags(*values):
    return uint64(len(values)) + bytes(values)


def matrix(values, rows):
    """Values in the order of the file, column-major."""
    values = np.asarray(values)
    sizes = int32(0) + uint64(rows, values.size // rows)
    return b"d" + text("BMAT") + uint64(values.itemsize) + text("unnamed") + sizes + values.tobytes() + text("EMAT")


def learnable(name, dims, values, rate=1.0, dtype=np.float32):
    values = np.asarray(values, dtype)
    return "LearnableParameter", name, struct.pack("<f", rate) + shape(*dims) + matrix(values, dims[0]), []


def source(name, *dims, axis="", op="InputValue", version=31):
    values = bytes(16) + shape(*dims) + (int32(1) + text(axis) if version >= 8 else b"")
    return op, name, values + (struct.pack("<f", 0) if version >= 10 else b""), []


def node(op, name, *inputs, values=b""):
    return op, name, values, list(inputs)


def times(name, *inputs, version=31):
    return node("Times", name, *inputs, values=uint64(1) + (int32(-1) if version >= 12 else b""))


def network(*nodes, outputs=(), version=18, precision="float", lists=None):
    data = text("BCN") + text("BVersion") + uint64(version) + text("EVersion") + uint64(len(nodes)) + text("BNodeList")
    for op, name, values, _ in nodes:
        data += (text(precision) if version >= 7 else b"") + text(op) + text(name) + values
    data += text("ENodeList") + text("BRelation")
    for _, name, _, inputs in nodes:
        data += text(name) + uint64(len(inputs)) + b"".join(map(text, inputs))
    data += text("ERelation") + text("BRootNodes")
    for kind in LISTS:
        names = ({"Output": outputs} | (lists or {})).get(kind, ())
        data += text(f"B{kind}Nodes") + uint64(len(names)) + b"".join(map(text, names)) + text(f"E{kind}Nodes")
    return data + text("ERootNodes") + text("ECN")
