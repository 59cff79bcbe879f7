"""Models saved by CNTK 2.7, exported to ONNX: ONNX Runtime computes the same values as CNTK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cntkjax as C

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "models"
MODELS = [
    "attention_seq2seq", "bilstm_tagger", "blocks_nested", "conv_sequential", "layernorm_dropout", "layers_options",
    "lstm_classifier", "placeholder_recurrence", "pooling", "reductions", "resnet", "rnn_stack", "sequence_ops",
    "shape_ops",
]


def entry_of(name: str) -> dict[str, Any]:
    with (GOLDEN / "index.json").open() as file:
        return next(e for e in json.load(file)["models"] if e["name"] == name)


def sample(arrays: Any, entry: dict[str, Any], i: int) -> np.ndarray:
    """Sample or sequence number i as ONNX has it: a batch of one."""
    key, layout = entry["key"], entry["layout"]
    if layout == "static":
        return arrays[key]
    if layout == "sparse_sequences":
        from scipy.sparse import csr_matrix

        parts = [arrays[f"{key}_s{i}_{part}"] for part in ("data", "indices", "indptr", "shape")]
        return np.asarray(csr_matrix(tuple(parts[:3]), shape=parts[3]).todense())[:, None]
    return arrays[f"{key}_s{i}"][:, None] if layout == "sequences" else arrays[key][i : i + 1]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("opset", [9, 17])
def test_a_model_of_cntk_runs_in_onnx_runtime(name: str, opset: int, tmp_path: Path) -> None:
    entry = entry_of(name)
    f = C.load_model(GOLDEN / entry["file"])
    f.save(tmp_path / "m.onnx", format=C.ModelFormat.ONNX, opset=opset)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    names, arrays = {v.name for v in session.get_inputs()}, np.load(GOLDEN / entry["data"])
    counts = [a.get("count") or len(arrays[a["key"]]) for a in entry["arguments"] if a["layout"] != "static"]
    for i in range(min(counts)):
        feeds = {a["name"] or a["uid"]: sample(arrays, a, i) for a in entry["arguments"]}
        values = session.run(None, {k: v for k, v in feeds.items() if k in names})
        for actual, output in zip(values, entry["outputs"], strict=True):
            expected = sample(arrays, output, i)
            np.testing.assert_allclose(actual.reshape(expected.shape), expected, rtol=3e-5, atol=3e-5)
