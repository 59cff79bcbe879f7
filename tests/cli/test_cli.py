"""The command describes a model, converts it to other formats, and evaluates it; errors are one clear line."""

import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.cli import main

GOLDEN = sorted((Path(__file__).resolve().parents[1] / "golden").glob("*/*.model*"))


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
                                (["convert", model, out], "")):
        run = subprocess.run(
            [sys.executable, "-m", "cntkjax.cli", *arguments], capture_output=True, text=True, timeout=100
        )
        assert run.returncode == 0 and expected in run.stdout, run.stderr
    assert C.load_model(out).outputs[0].name == "double"
    wrong = subprocess.run([sys.executable, "-m", "cntkjax.cli", "frobnicate"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "invalid choice" in wrong.stderr


def test_an_interrupted_command_says_so_in_one_line(tmp_path):
    os.mkfifo(tmp_path / "m.model")
    arguments = [sys.executable, "-m", "cntkjax.cli", "convert", tmp_path / "m.model", tmp_path / "m.onnx"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as command:
        with (tmp_path / "m.model").open("wb"):  # as soon as the command reads it
            command.send_signal(signal.SIGINT)
            assert command.wait(60) == 130
        assert command.stderr.read() == "cntkjax convert: interrupted\n"


def test_port_names_a_model_that_is_not_there(tmp_path, capsys):
    path = str(tmp_path / "nowhere.model")
    assert main(["port", path, "--to", "torch", "-o", str(tmp_path / "out")]) == 1
    assert path in capsys.readouterr().err
    assert main(["port", path, "--to", "torch"]) == 1
    assert "a model is ported with --to (" in capsys.readouterr().err


def test_info_lists_the_content_of_a_model(model, capsys):
    assert main(["info", str(model)]) == 0
    text = capsys.readouterr().out
    for line in ("  x [3] float32 [#]", "  double [3] float32 [#]", "  W [3 x 3] float32", "     1 Times"):
        assert line in text.splitlines()
    assert "parameters, 9 numbers in all" in text


def test_info_works_on_every_golden_file(capsys):
    for path in GOLDEN:
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


def test_the_version_is_printed(capsys):
    from importlib.metadata import version

    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"cntkjax {version('cntkjax')}\n"


def test_info_names_the_layers_of_parameters_whose_names_repeat(tmp_path, capsys):
    h = C.layers.Dense(5, name="h")(C.input_variable(3))
    C.layers.Dense(2, bias=False)(h).save(tmp_path / "m.model")
    assert main(["info", str(tmp_path / "m.model")]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row for row in rows if "float32" in row and ("W" in row or " b " in row)] == [
        "  h.W [3 x 5] float32", "  b [5] float32", "  Dense.W [5 x 2] float32"
    ]


@pytest.mark.parametrize("command", ["info", "convert", "eval", "train", "view", "diff", "launch", "doctor"])
def test_each_command_explains_its_arguments(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0
    if command not in ("launch", "doctor"):
        assert "a .model file of CNTK 2, a .dnn file of CNTK 1, or an .onnx file" in text
    if command in ("eval", "train"):
        assert "such as --field features=x for '|x 1 2'" in text


@pytest.fixture
def reductions(tmp_path):
    """A model with outputs of each sample, of the whole minibatch, and of no data; and 2,000 rows of ones."""
    x, w = C.input_variable(2, name="x"), C.parameter(2, init=3, name="w")
    every = C.Axis.all_axes()
    C.combine([
        C.plus(x, 1, name="each"), C.reduce_sum(x, axis=every, name="total"), C.reduce_max(x, axis=every, name="most"),
        C.reduce_sum(w, name="fixed"),
    ]).save(tmp_path / "m.model")
    (tmp_path / "d.ctf").write_text("|x 1 0\n" * 2000)
    return str(tmp_path / "m.model"), str(tmp_path / "d.ctf")


def test_eval_says_which_values_are_sums_and_adds_them_up_over_the_file(reductions, capsys):
    model, data = reductions
    assert main(["eval", model, "--data", data]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 |each 2 1" and sum(line.endswith("|each 2 1") for line in lines) == 2000
    assert [line for line in lines if "each" not in line] == [
        "|most 1 |# of the minibatch of the sequences 0 to 1023",
        "|most 1 |# of the minibatch of the sequences 1024 to 1999",
        f"|total 2000 |# the sum over all 2000 sequences of {data}",
        "|fixed 6 |# independent of the data",
    ]
    C.io.MinibatchSource(C.io.CTFDeserializer(data, C.io.StreamDefs(x=C.io.StreamDef("x", shape=2))))  # can be read


def test_a_malformed_row_is_no_reason_to_name_options_of_a_deserializer(model, tmp_path, capsys):
    (tmp_path / "d.ctf").write_text("|x 1 2 3\n|x 1 2 y\n")
    assert main(["eval", str(model), "--data", str(tmp_path / "d.ctf")]) == 1
    error = capsys.readouterr().err
    assert "d.ctf:2: " in error and error.endswith(": correct the row\n") and "maxErrors" not in error


def test_warnings_are_lines_of_the_command(model, tmp_path, capsys):
    (tmp_path / "d.ctf").write_text("|x 1 2\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.filters", [("default", None, Warning, None, 0)])
        assert main(["eval", str(model), "--data", str(tmp_path / "d.ctf"), "--output", "sum"]) == 0
    assert capsys.readouterr().err == (
        f"cntkjax eval: warning: {tmp_path}/d.ctf:1: stream '|x' has fewer than 3 values; the rest are zeros\n"
    )


@pytest.mark.parametrize("out", ["new.pt", "new.h5", "new.keras", "new.npz", "nowhere/new.model", "."])
def test_convert_writes_no_file_of_another_kind_and_makes_no_folders(model, tmp_path, monkeypatch, capsys, out):
    monkeypatch.chdir(tmp_path)
    assert main(["convert", str(model), out]) == 1
    error = capsys.readouterr().err
    assert ".onnx (ONNX), .stablehlo" in error or "'nowhere'" in error or "is a folder" in error
    assert [path.name for path in tmp_path.iterdir()] == ["m.model"]


@pytest.mark.parametrize("out", ["new", "new.model", "new.cmf", "NEW.MODEL"])
def test_convert_writes_models_of_cntk_under_its_usual_names(model, tmp_path, out):
    assert main(["convert", str(model), str(tmp_path / out)]) == 0
    assert C.load_model(tmp_path / out).outputs[0].name == "double"


@pytest.mark.parametrize(("content", "kind"), [
    (b"|x 1 2 3\n|x 4 5 6\n", "a text file"), ("é".encode() * 400, "a text file"), (b"PK\3\4....", "a zip archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"), (b"\x80\x04\x95", "a pickle"), (b"\x89PNG\r\n", "a picture"),
])
@pytest.mark.parametrize("command", ["info", "view"])
def test_files_of_other_kinds_are_named(tmp_path, capsys, content, kind, command):
    (tmp_path / "f").write_bytes(content)
    assert main([command, str(tmp_path / "f"), *(["out.html"] if command == "view" else [])]) == 1
    assert re.search(f"f is {kind}.*, and no model or checkpoint of CNTK", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["info", "nowhere"], "there is no such file"),
        (["info", "{data}"], "is a text file, and no model"),
        (["info", "."], "'.': Is a directory"),
        (["convert", "{model}", "out.dnn"], "the format of CNTK 1 cannot be written"),
        (["eval", "{model}", "--data", "nowhere"], "no file 'nowhere'"),
        (["eval", "{model}", "--data", "{data}", "--output", "z"], "no output 'z'; use one of: double, sum"),
        (["eval", "{model}", "--data", "{data}", "--field", "y=S0"], "no input 'y'; use one of: x"),
        (["eval", "{model}", "--data", "{data}", "--field", "x"], "--field x: write INPUT=FIELD"),
        (["eval", "{model}", "--data", "{data}", "--field", "x=q"], r"no field .*; its fields are x, z. .*--field x="),
        (["eval", "{model}", "--data", "{model}"], "has no field"),
        (["train", "nowhere.cntk", "{model}", "--data", "{data}"], "there is no file 'nowhere.cntk'"),
        (["train", ".", "{model}", "--data", "{data}"], "'.' is a folder"),
        (["launch", "-n", "2", "nowhere.py"], "there is no file 'nowhere.py'"),
    ],
)
def test_errors_are_one_line(model, tmp_path, capsys, arguments, reason):
    data = tmp_path / "d.ctf"
    data.write_text("0 |x 1 2 3 |z 1 |# comment\n")
    assert main([a.format(model=model, data=data) for a in arguments]) == 1
    error = capsys.readouterr().err
    assert re.search(reason, error) and error.startswith(f"cntkjax {arguments[0]}: ")
