"""The command describes a model, converts it to other formats, and evaluates it; errors are one clear line."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.cli import main

SHARED = Path(__file__).resolve().parents[3] / "shared"
GOLDEN = sorted((SHARED / "golden").glob("*/*.model*"))


@pytest.fixture
def model(tmp_path):
    """x [3], 2 * x + 1 as `double`, and its sum."""
    x = C.input_variable(3, name="x")
    double = C.plus(C.times(x, C.parameter((3, 3), init=2 * np.eye(3, dtype=np.float32), name="W")), 1, name="double")
    C.combine([double, C.reduce_sum(double, name="sum")]).save(tmp_path / "m.model")
    return tmp_path / "m.model"


def test_the_installed_command_runs(model, tmp_path):
    """As a user calls it; the other tests call its main function."""
    out = tmp_path / "copy.model"
    for arguments, expected in ((["--help"], "usage: cntkjax"), (["info", model], "double [3]"),
                                (["convert", model, out], "")):  # fmt: skip
        run = subprocess.run(
            [sys.executable, "-m", "cntkjax.cli", *arguments], capture_output=True, text=True, timeout=100
        )
        assert run.returncode == 0 and expected in run.stdout, run.stderr
    assert C.load_model(out).outputs[0].name == "double"
    wrong = subprocess.run([sys.executable, "-m", "cntkjax.cli", "frobnicate"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "invalid choice" in wrong.stderr


def test_info_lists_the_content_of_a_model(model, capsys):
    assert main(["info", str(model)]) == 0
    text = capsys.readouterr().out
    for line in ("  x [3] float32 [#]", "  double [3] float32 [#]", "  W [3 x 3] float32", "     1 Times"):
        assert line in text.splitlines()
    assert "parameters, 9 numbers in all" in text


@pytest.mark.skipif(not GOLDEN, reason="needs CNTK's own files in ../shared/golden")
def test_info_works_on_every_golden_file(capsys):
    for path in [*GOLDEN, *SHARED.glob("data/legacy/*.dnn")]:
        assert main(["info", str(path)]) == 0, path
        assert str(path) in capsys.readouterr().out


def test_an_unknown_operation_is_named(model, capsys):
    from cntkjax.formats.dictionary import SizeT, decode, encode

    content = decode(model.read_bytes())
    next(f for f in content["primitive_functions"] if f["op"] == 31)["op"] = SizeT(4711)
    model.write_bytes(encode(content))
    assert main(["info", str(model)]) == 0
    text = capsys.readouterr().out
    assert "operation 4711 (unknown to this package)" in text and "The model cannot be loaded" in text


def test_convert_to_weights(model, tmp_path):
    out = tmp_path / "w.safetensors"
    assert main(["convert", str(model), str(out)]) == 0
    data = out.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    begin, end = header["W"]["data_offsets"]
    assert (size % 8, header["W"]["dtype"], header["W"]["shape"]) == (0, "F32", [3, 3])
    np.testing.assert_array_equal(np.frombuffer(data[8 + size :][begin:end], np.float32), 2 * np.eye(3).ravel())


def test_convert_to_onnx_and_back(model, tmp_path, capsys):
    onnx, model_again = tmp_path / "m.onnx", tmp_path / "back.model"
    pytest.importorskip("onnx")
    assert main(["convert", str(model), str(onnx)]) == 0
    assert main(["info", str(onnx)]) == 0
    assert "a model of ONNX" in capsys.readouterr().out
    assert main(["convert", str(onnx), str(model_again)]) == 0
    f = C.load_model(model_again)
    result = f.eval({f.arguments[0]: np.float32([[1, 2, 3], [0, 0, 0]])}, outputs=[f.outputs[0]])
    np.testing.assert_array_equal(result, [[3, 5, 7], [1, 1, 1]])
    assert main(["convert", str(model), str(onnx), "--opset", "3"]) == 1
    assert "opset 3 is not supported" in capsys.readouterr().err


def test_convert_to_stablehlo(model, tmp_path):
    import jax

    out = tmp_path / "m.stablehlo"
    assert main(["convert", str(model), str(out)]) == 0
    double, _ = jax.export.deserialize(bytearray(out.read_bytes())).call(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(double, np.full((2, 3), 3))


def test_eval_prints_the_outputs_in_the_text_format(model, tmp_path, capsys):
    data = tmp_path / "d.ctf"
    data.write_text("0 |x 1 2 3\n1 |x 0 0 -1\n")
    assert main(["eval", str(model), "--data", str(data)]) == 0
    assert capsys.readouterr().out == "0 |double 3 5 7 |sum 15\n1 |double 1 1 -1 |sum 1\n"
    assert main(["eval", str(model), "--data", str(data), "--output", "sum"]) == 0
    assert capsys.readouterr().out == "0 |sum 15\n1 |sum 1\n"


def test_eval_of_sparse_sequences_with_a_field_of_another_name(tmp_path, capsys):
    s = C.sequence.input_variable(4, is_sparse=True, name="words")
    f = C.combine([C.times(s, np.eye(4, 2, dtype=np.float32), name="steps"), C.sequence.last(s)])
    f.save(tmp_path / "m.model")
    (tmp_path / "d.ctf").write_text("7 |S0 0:1\n7 |S0 1:3\n9 |S0 3:1\n")
    arguments = ["eval", str(tmp_path / "m.model"), "--data", str(tmp_path / "d.ctf"), "--field", "words=S0"]
    assert main([*arguments, "--output", "steps"]) == 0
    assert capsys.readouterr().out == "0 |steps 1 0\n0 |steps 0 3\n1 |steps 0 0\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["info", "nowhere"], "there is no such file"),
        (["info", "{data}"], "damaged|no model|unknown"),
        (["convert", "{model}", "out.dnn"], "the format of CNTK 1 cannot be written"),
        (["eval", "{model}", "--data", "nowhere"], "no file 'nowhere'"),
        (["eval", "{model}", "--data", "{data}", "--output", "z"], "no output 'z'; use one of: double, sum"),
        (["eval", "{model}", "--data", "{data}", "--field", "y=S0"], "no input 'y'; use one of: x"),
    ],
)
def test_errors_are_one_line(model, tmp_path, capsys, arguments, reason):
    import re

    data = tmp_path / "d.ctf"
    data.write_text("0 |x 1 2 3\n")
    assert main([a.format(model=model, data=data) for a in arguments]) == 1
    error = capsys.readouterr().err
    assert re.search(reason, error) and error.startswith(f"cntkjax {arguments[0]}: ")
