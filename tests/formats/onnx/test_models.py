"""Complete models of CNTK, PyTorch and scikit-learn: values, names, external data, training."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cntkjax as C

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)

ONNX = C.ModelFormat.ONNX
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "onnx"
R = np.random.default_rng(3)


def run(model: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    session = runtime.InferenceSession(str(model) if isinstance(model, Path) else model)
    return session.run(None, {v.name: a for v, a in zip(session.get_inputs(), arrays, strict=True)})


# ---- CNTK's own files
@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet", (1, 3, 8, 8)), ("bilstm_tagger", (5, 1, 7)), ("mlp_activations", (1, 6)), ("op_lrn", (1, 5, 3, 3)),
     ("conv_transpose", (1, 3, 4, 5)), ("seq_gru_back", (4, 1, 3)), ("optimized_rnn_tanh", (4, 1, 3)),
     ("op_element_select", (1, 3, 2)), ("reductions", (1, 3, 4)), ("batchnorm", (1, 3, 4, 4))],
)
def test_files_of_cntk_compute_the_same_as_onnx_runtime(name: str, shape: tuple[int, ...]) -> None:
    path = GOLDEN / f"{name}.onnx"
    x = R.normal(size=shape).astype(np.float32)
    f = C.Function.load(path, format=ONNX)
    assert f.name == (f.output.name if len(f.outputs) == 1 else "")  # as in CNTK
    result = f.eval({f.arguments[0]: x})
    values = list(result.values()) if len(f.outputs) > 1 else [result]
    for actual, expected in zip(values, run(path, x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("samples", "momentum"), [  # as CNTK 2.7 writes it
    (5000, 0.99044591), (100, 0.61878341), (3, 1.1920929e-07), (1, 0), (0, 0), (np.inf, 1),
])
def test_the_time_constant_of_statistics_is_written_as_a_momentum(
    samples: float, momentum: float, tmp_path: Path
) -> None:
    x = C.input_variable((2, 3, 3))
    C.layers.BatchNormalization(map_rank=1, normalization_time_constant=samples)(x).save(tmp_path / "f", format=ONNX)
    (node,) = [n for n in onnx.load(tmp_path / "f").graph.node if n.op_type == "BatchNormalization"]
    (written,) = [a.f for a in node.attribute if a.name == "momentum"]
    assert written == pytest.approx(momentum, rel=1e-6)


# ---- other exporters
def exported(net: Any, x: Any, axes: dict[int, str] | None, opset: int) -> bytes:
    torch = pytest.importorskip("torch")
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), (x,), data, dynamo=False, opset_version=opset, input_names=["x"],
                          dynamic_axes=None if axes is None else {"x": axes})
    return data.getvalue()


def torch_models() -> dict[str, tuple[Any, Any, dict[int, str]]]:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(1)

    class Tagger(nn.Module):
        def __init__(self, kind: str, **options: Any) -> None:
            super().__init__()
            self.embed, self.body = nn.Embedding(11, 6), getattr(nn, kind)(6, 4, **options)
            self.head = nn.Linear(4 * (1 + options.get("bidirectional", False)), 3)

        def forward(self, words: Any) -> Any:
            return self.head(self.body(self.embed(words))[0])

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Dropout(0.3), nn.Linear(8, 3))

        def forward(self, x: Any) -> Any:
            return self.layers(x.view(x.size(0), -1)).log_softmax(-1)

    image = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
        nn.Softmax(1),
    )
    words, time = torch.randint(0, 11, (5, 2)), {0: "time", 1: "batch"}
    return {
        "cnn": (image, torch.randn(2, 3, 12, 12), {0: "batch"}),
        "mlp": (Perceptron(), torch.randn(3, 2, 2), {0: "batch"}),
        "lstm": (Tagger("LSTM"), words, time),
        "two-way lstm": (Tagger("LSTM", bidirectional=True, num_layers=2), words, time),
        "gru": (Tagger("GRU"), words, time),
        "rnn": (Tagger("RNN", nonlinearity="relu"), words, time),
    }


@pytest.mark.parametrize("name", ["cnn", "mlp", "lstm", "two-way lstm", "gru", "rnn"])
@pytest.mark.parametrize(("any_size", "opset"), [(False, 9), (True, 17)])
def test_models_of_pytorch(name: str, any_size: bool, opset: int) -> None:
    net, x, axes = torch_models()[name]
    data = exported(net, x, axes if any_size else None, opset)
    f = C.Function.load(data, format=ONNX)
    actual = f.eval({f.arguments[0]: x.numpy().astype(np.float32)})
    np.testing.assert_allclose(actual, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual, run(data, x.numpy())[0], rtol=1e-5, atol=1e-6)


def test_models_of_scikit_learn() -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = R.normal(size=(60, 4)).astype(np.float32)
    kinds = (x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 2] > 0.5)
    plain = {"zipmap": False}
    for model, target, options in (
        (make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=20, random_state=0)), kinds, plain),
        (LogisticRegression(), kinds, plain), (make_pipeline(StandardScaler(), LinearRegression()), x[:, 1], None),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = skl2onnx.to_onnx(model.fit(x, target), x, options=options, target_opset=17).SerializeToString()
        f = C.Function.load(data, format=ONNX)
        result = f.eval({f.arguments[0]: x})
        for actual, expected in zip(result.values() if len(f.outputs) > 1 else [result], run(data, x), strict=True):
            np.testing.assert_allclose(np.reshape(actual, expected.shape), expected, rtol=1e-5, atol=1e-5)


# ---- names and files
def network() -> tuple[Any, np.ndarray]:
    x = C.input_variable((2, 6, 6), name="image")
    body = C.layers.Sequential([
        C.layers.Convolution((3, 3), 4, pad=True, activation=C.relu, name="conv"), C.layers.MaxPooling((2, 2), 2),
        C.layers.Dense(5, name="scores"),
    ])
    return C.softmax(body(x), name="answer"), R.normal(size=(1, 2, 6, 6)).astype(np.float32)


def test_inputs_outputs_weights_and_nodes_keep_their_names(tmp_path: Path) -> None:
    f, x = network()
    f.save(tmp_path / "m.onnx", format=ONNX)
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [v.name for v in graph.input] == ["image"] and [v.name for v in graph.output] == ["answer_Output"]
    assert [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == [1, 2, 6, 6]
    again = C.load_model(tmp_path / "m.onnx", format=ONNX)
    assert {p.name for p in again.parameters} >= {"W", "b"}
    assert [n.name for n in C.logging.graph.depth_first_search(again, lambda n: n.name == "answer")] == ["answer"]
    np.testing.assert_allclose(again.eval(x), f.eval(x), rtol=1e-5)
    again.save(tmp_path / "again.onnx", format=ONNX)
    np.testing.assert_allclose(run(tmp_path / "again.onnx", x)[0], f.eval(x), rtol=1e-5)


def test_batches_and_sequences_of_any_size_are_named_dimensions(tmp_path: Path) -> None:
    x, y = C.sequence.input_variable(2, name="x"), C.sequence.input_variable(2, sequence_axis=C.Axis("other"), name="y")
    f = C.sequence.last(x) + C.sequence.last(y)
    for opset, batch in ((9, 1), (17, "batch")):
        f.save(tmp_path / "m.onnx", format=ONNX, opset=opset)
        graph = onnx.load(tmp_path / "m.onnx").graph
        shapes = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.input]
        assert shapes == [["Sequence", batch, 2], ["Sequence_1", batch, 2]]


def test_parameters_in_a_second_file(tmp_path: Path) -> None:
    x = C.input_variable(40, name="x")
    f, v = C.layers.Dense(30)(x), R.normal(size=(1, 40)).astype(np.float32)
    f.save(tmp_path / "m.onnx", format=ONNX, use_external_files_to_store_parameters=True)
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}
    assert (tmp_path / "m.onnx").stat().st_size < 1500 < (tmp_path / "m.onnx.data").stat().st_size
    np.testing.assert_allclose(run(tmp_path / "m.onnx", v)[0], f.eval(v), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(C.load_model(tmp_path / "m.onnx", format=ONNX).eval(v), f.eval(v), rtol=1e-5, atol=1e-6)


def test_read_models_can_be_trained_and_saved_as_cntk_models(tmp_path: Path) -> None:
    f, x = network()
    f.save(tmp_path / "m.onnx", format=ONNX)
    again = C.load_model(tmp_path / "m.onnx", format=ONNX)
    label = C.input_variable((1, 5), dynamic_axes=[])
    loss = C.cross_entropy_with_softmax(again, label, axis=-1)
    learner = C.sgd(loss.parameters, C.learning_parameter_schedule(0.1))
    before = [p.value.copy() for p in learner.parameters]
    C.Trainer(loss, loss, [learner]).train_minibatch({loss.arguments[0]: x, label: np.eye(1, 5, dtype=np.float32)})
    assert any(np.abs(p.value - b).max() > 0 for p, b in zip(learner.parameters, before, strict=True))
    again.save(tmp_path / "m.model")
    np.testing.assert_array_equal(C.load_model(tmp_path / "m.model").eval(x), again.eval(x))


def test_a_function_of_constants_and_several_outputs(tmp_path: Path) -> None:
    (C.constant([1, 3]) * 5).save(tmp_path / "c.onnx", format=ONNX)
    np.testing.assert_array_equal(C.load_model(tmp_path / "c.onnx", format=ONNX).eval(), [5, 15])
    x = C.input_variable(2, name="x")
    C.combine([x * 2, C.reduce_sum(x), x]).save(tmp_path / "o.onnx", format=ONNX, opset=13)
    v = np.array([[1, 2], [3, 4]], np.float32)
    for actual, expected in zip(run(tmp_path / "o.onnx", v), [2 * v, v.sum(1), v], strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_half_and_double_precision(tmp_path: Path) -> None:
    for dtype in (np.float16, np.float64):
        x = C.input_variable(3, dtype=dtype, name="x")
        w = C.parameter(init=R.normal(size=(3, 2)).astype(dtype), dtype=dtype)
        f, v = C.tanh(C.times(x, w)), R.normal(size=(1, 3)).astype(dtype)
        f.save(tmp_path / "m.onnx", format=ONNX)
        again = C.load_model(tmp_path / "m.onnx", format=ONNX)
        assert again.dtype is dtype
        np.testing.assert_allclose(again.eval(v), f.eval(v), rtol=1e-3 if dtype is np.float16 else 1e-12)
        np.testing.assert_allclose(run(tmp_path / "m.onnx", v)[0], f.eval(v), rtol=3e-3)


def test_unit_matrices_of_all_precisions_depend_on_their_operand(tmp_path: Path) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        x = C.input_variable((4, 4), dtype=dtype, dynamic_axes=[])
        C.eye_like(x, sparse_output=False).save(tmp_path / "m.onnx", format=ONNX)
        again = C.load_model(tmp_path / "m.onnx", format=ONNX)
        value = again.eval({again.arguments[0]: np.zeros((4, 4), dtype)})
        assert value.dtype == dtype
        np.testing.assert_array_equal(value, np.eye(4))


def test_errors_name_the_missing_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    for use in (lambda: C.load_model(b"", format=ONNX), lambda: network()[0].save(tmp_path / "m.onnx", format=ONNX)):
        with pytest.raises(ImportError, match=r'pip install "cntkjax\[onnx\]"'):
            use()


def test_unsupported_opsets_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="opset 5 is not supported: it is one of 9 to 21"):
        network()[0].save(tmp_path / "m.onnx", format=ONNX, opset=5)


def test_a_cell_whose_states_are_constants_is_written_as_its_operations(tmp_path: Path) -> None:
    x, zero = C.input_variable(3), C.constant(0, (2,))
    f = C.combine([C.layers.LSTM(2, init=1)(zero, zero, x).outputs[0]])
    f.save(tmp_path / "cell.onnx", format=ONNX)
    data = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(run(tmp_path / "cell.onnx", data)[0], f.eval({x: data}), rtol=1e-6)


@pytest.mark.parametrize(("counts", "steps"), [
    ([1.5, 1.5, 1.5], [0, 0, 1, 2, 2]), ([0.5, 0.5, 0.5, 0.5], [0, 2]), ([0.3, 0.3, 0.3, 2.2], [0, 3, 3, 3]),
    ([2.5], [0, 0, 0]),
])
def test_fractions_of_a_condition_add_up_as_in_cntk(counts: list[float], steps: list[int], tmp_path: Path) -> None:
    C.sequence.where(C.sequence.input_variable(1)).save(tmp_path / "where.onnx", format=ONNX, opset=17)
    data = np.array(counts, np.float32)[:, None, None]
    assert run(tmp_path / "where.onnx", data)[0].ravel().tolist() == steps


X, C1 = C.sequence.input_variable(2, name="x"), C.sequence.input_variable(1, name="c")
START = C.input_variable(2, name="s")
FEW = C.sequence.input_variable(2, sequence_axis=C.Axis("few"), name="few")


@pytest.mark.parametrize("f", [
    C.sequence.where(C1), C.sequence.gather(X, C1), C.sequence.gather(X, C.greater(C1, 0.5)),
    C.sequence.scatter(FEW, C1),
    C.layers.UnfoldFrom(lambda s: C.tanh(s - 0.4), until_predicate=lambda y: C.less(C.reduce_sum(y), -0.5))(START, X),
], ids=["where", "gather", "gather by a comparison", "scatter", "generator"])
def test_each_sequence_of_a_batch_has_its_own_condition(f: Any, tmp_path: Path) -> None:
    f.save(tmp_path / "batch.onnx", format=ONNX, opset=17)
    steps = [R.normal(size=(4, 2)).astype(np.float32) for _ in range(3)]
    equal = {
        "x": steps, "few": [s[:2] for s in steps], "s": np.float32([[1, 1], [0.9, 0.9], [1.1, 0.9]]),
        "c": [np.float32(c)[:, None] for c in ([1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0])],
    }
    unequal = equal | {
        "s": np.float32([[1, 1], [0, 0], [1, 1]]), "c": [*equal["c"][:2], np.float32([[1], [1], [1], [0]])],
    }

    def there(data: dict[str, Any]) -> np.ndarray:
        fed = {k: np.stack(v, 1) if isinstance(v, list) else v for k, v in data.items()}
        return run(tmp_path / "batch.onnx", *(fed[v.name] for v in f.arguments))[0]

    here = f.eval({v: equal[v.name] for v in f.arguments})
    np.testing.assert_allclose(np.moveaxis(there(equal), 0, 1), np.stack(here), rtol=1e-5, atol=1e-6)
    if "few" not in [v.name for v in f.arguments]:  # whose lengths are those of the conditions
        with pytest.raises(runtime.capi.onnxruntime_pybind11_state.Fail, match="as many steps of each sequence"):
            there(unequal)


def test_a_block_of_parameters_alone_is_written_as_its_operations(tmp_path: Path) -> None:
    x, p = C.input_variable((2, 2)), C.parameter(init=np.float32([[-1, 2], [0.5, -0.25]]))
    f = C.elu(p) + C.softsign(p) * x
    f.save(tmp_path / "leaves.onnx", format=ONNX, opset=17)
    data = R.normal(size=(3, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "leaves.onnx", data)[0], f.eval({x: data}), rtol=1e-6)


def test_a_loop_whose_initial_state_is_larger_than_its_steps_is_written(tmp_path: Path) -> None:
    p, s = C.placeholder(), C.sequence.input_variable(1)
    h = C.reduce_sum(C.sequence.past_value(p, C.constant([1, 2, 3]))) + s
    f = h.replace_placeholders({p: h.output})
    f.save(tmp_path / "larger.onnx", format=ONNX, opset=17)
    steps = R.normal(size=(4, 2, 1)).astype(np.float32)
    (there,) = run(tmp_path / "larger.onnx", steps)
    np.testing.assert_allclose(there[:, 1], f.eval({s: [steps[:, 0], steps[:, 1]]})[1], rtol=1e-5)


def test_errors_of_a_constant_label_or_constant_scores_are_written(tmp_path: Path) -> None:
    x, y = C.sequence.input_variable(3), C.constant([0, 1, 0])
    steps = R.normal(size=(4, 1, 3)).astype(np.float32)
    for f in (C.classification_error(x, y), C.classification_error(y, x)):
        f.save(tmp_path / "error.onnx", format=ONNX, opset=17)
        (there,) = run(tmp_path / "error.onnx", steps)
        np.testing.assert_allclose(there[:, 0], f.eval({x: [steps[:, 0]]})[0])
