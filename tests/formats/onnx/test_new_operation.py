"""The ONNX form of an operation is one decorated function for each direction; without it, saving is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax._typing import Array
from cntkjax.formats.onnx.reading import model as _reading_model  # noqa: F401  (fills the table)
from cntkjax.formats.onnx.reading import table as reading
from cntkjax.formats.onnx.writing import model as _writing_model  # noqa: F401  (fills the table)
from cntkjax.formats.onnx.writing import table as writing
from cntkjax.formats.onnx.writing.graph import ExportError, GraphWriter
from cntkjax.graph.build import apply
from cntkjax.graph.function import Node
from cntkjax.primitives.base import BY_ID, BY_NAME, Attrs, Primitive, primitive
from cntkjax.primitives.elementwise import Elementwise

pytest.importorskip("onnx")
X = np.array([[1, -2, 3]], np.float32)


@pytest.fixture
def shrink() -> Iterator[Primitive]:
    """A new primitive, which is the ONNX operation Shrink with its default attributes."""
    saved = [(table, dict(table)) for table in (BY_NAME, BY_ID, writing.PRIMITIVES, reading.OPERATIONS)]

    @primitive(name="ShrinkForTest", cntk_id=990_001)
    class Shrink(Elementwise):
        def lower(self, attrs: Attrs, *samples: Array) -> Array:
            (x,) = samples
            return x * (abs(x) > 0.5)

    yield Shrink
    for table, content in saved:
        table.clear()
        table.update(content)


def model(operation: Primitive) -> C.Function:
    return apply(operation, [C.input_variable(3, name="x")], name="shrunk")


def test_without_a_row_the_error_names_the_operation(shrink: Primitive, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="ONNX has no operation for ShrinkForTest\\nFix: "):
        model(shrink).save(tmp_path / "m.onnx", format=C.ModelFormat.ONNX)
    assert not list(tmp_path.iterdir())


def test_a_row_for_each_direction_is_all_it_takes(shrink: Primitive, tmp_path: Path) -> None:
    @writing.writes("ShrinkForTest")
    def _write(w: GraphWriter, node: Node, x: str) -> str:
        return w.node("Shrink", [x])

    @reading.reads("Shrink")
    def _read(node: reading.OnnxNode) -> C.Function:
        return apply(shrink, [node.operand()])

    f = model(shrink)
    f.save(tmp_path / "m.onnx", format=C.ModelFormat.ONNX, opset=13)
    loaded = C.Function.load(tmp_path / "m.onnx", format=C.ModelFormat.ONNX)
    assert [n.op_name for n in (loaded.root_function, f.root_function)] == ["ShrinkForTest"] * 2
    assert loaded.root_function.name == "shrunk"
    np.testing.assert_array_equal(loaded.eval(X), f.eval(X))
