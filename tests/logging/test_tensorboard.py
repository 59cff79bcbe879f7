"""Event files: tags, steps and values recorded from those that CNTK 2.7 writes; images by our own rule."""
import io
import struct
import subprocess
import sys

import numpy as np
import pytest

import cntkjax as C
from cntkjax.logging import TensorBoardProgressWriter

pytest.importorskip("tensorboardX")


def events(folder):
    """(step, tag, value or image) of everything recorded in the folder's one event file."""
    from PIL import Image

    values = []
    for event in raw_events(folder):
        for value in event.summary.value:
            image = value.image.encoded_image_string
            shown = np.asarray(Image.open(io.BytesIO(image))) if image else pytest.approx(value.simple_value)
            values.append((event.step, value.tag, shown))
    return values


def raw_events(folder):
    """The records of the folder's one event file, whose framing is TensorFlow's: length, checksum, data, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.out.tfevents.*")
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield Event.FromString(data[at + 12:at + 12 + size])
        at += 16 + size


def test_losses_and_metrics_of_training_and_test(tmp_path):
    writer = TensorBoardProgressWriter(freq=2, log_dir=str(tmp_path))
    for _ in range(2):
        for i in range(1, 6):
            writer.update_training(2, 2 * i * i, 0.02 * i * i)
        writer.write_training_summary()
    writer.update_test(10, 1.1)
    writer.write_test_summary()
    writer.write_value("mine", 3, 7)
    writer.close()
    assert events(tmp_path) == [
        (2, "minibatch/avg_loss", 2.5), (2, "minibatch/avg_metric", 0.025),
        (4, "minibatch/avg_loss", 12.5), (4, "minibatch/avg_metric", 0.125),
        (1, "summary/avg_loss", 11), (1, "summary/avg_metric", 0.11),
        (7, "minibatch/avg_loss", 2.5), (7, "minibatch/avg_metric", 0.025),
        (9, "minibatch/avg_loss", 12.5), (9, "minibatch/avg_metric", 0.125),
        (2, "summary/avg_loss", 11), (2, "summary/avg_metric", 0.11),
        (10, "minibatch/test_avg_metric", 0.11), (7, "mine", 3)]


def test_without_training_the_steps_are_tests_and_empty_ones_are_zero(tmp_path):
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path))
    writer.write_training_summary()
    writer.write_test_summary()
    writer.close()
    tags = ["summary/avg_loss", "summary/avg_metric", "summary/test_avg_metric"]
    assert events(tmp_path) == [(1, tag, 0) for tag in tags]


def graph_of(model, folder):
    from tensorboardX.proto.graph_pb2 import GraphDef

    TensorBoardProgressWriter(log_dir=str(folder), model=model).close()
    (graph,) = [GraphDef.FromString(event.graph_def) for event in raw_events(folder) if event.graph_def]
    return graph


def test_a_model_is_shown_as_a_graph(tmp_path):
    x, p = C.input_variable((2, 3), name="x"), C.Parameter((2, 3))
    product = x * p
    graph = graph_of(C.combine(C.tanh(product, name="squashed"), C.reduce_sum(x)), tmp_path)
    names = {node.op: node.name for node in graph.node}
    assert [(node.name, node.op, list(node.input)) for node in graph.node] == [
        (names["Combine"], "Combine", ["squashed", names["ReduceElements"]]),
        ("squashed", "Tanh", [names["ElementTimes"]]),
        (product.root_function.uid, "ElementTimes", ["x", p.uid]),
        ("x", "Input", []), (p.uid, "Parameter", []),
        (names["ReduceElements"], "ReduceElements", ["x"])]

    def sizes(shape):
        return [dim.size for dim in shape.dim]

    combined = graph.node[0].attr
    assert sizes(combined["shape"].shape) == [3, 2] and combined["dtype"].type == 1
    assert [sizes(shape) for shape in combined["_output_shapes"].list.shape] == [[3, 2], []]


def test_what_is_inside_a_block_is_shown_in_a_folder_with_its_name(tmp_path):
    """Nodes, their order and that of their operands are those of an event file of CNTK."""
    a = C.input_variable(2, name="a")
    model = C.layers.Sequential([C.layers.BatchNormalization(name="bn"), C.layers.Dense(3, name="d")])(a)
    loss = C.cross_entropy_with_softmax(model, C.input_variable(3, name="l"), name="ce")
    assert [(node.name.rstrip("0123456789"), node.op, [i.rstrip("0123456789") for i in node.input])
            for node in graph_of(loss, tmp_path).node] == [
        ("ce/Minus", "Minus", ["ce/ReduceElements", "ce/TransposeTimes"]),
        ("ce/ReduceElements", "ReduceElements", ["d/Plus"]),
        ("ce/TransposeTimes", "TransposeTimes", ["d/Plus", "l"]),
        ("d/Plus", "Plus", ["d/Times", "d/b"]),
        ("d/Times", "Times", ["d/W", "bn/BatchNormalization"]),
        ("d/W", "Parameter", []), ("d/b", "Parameter", []),
        ("bn/BatchNormalization", "BatchNormalization",
         ["bn/scale", "bn/bias", "bn/aggregate_mean", "bn/aggregate_variance", "bn/aggregate_count", "a"]),
        ("bn/scale", "Parameter", []), ("bn/bias", "Parameter", []), ("bn/aggregate_mean", "Const", []),
        ("bn/aggregate_variance", "Const", []), ("bn/aggregate_count", "Const", []),
        ("a", "Input", []), ("l", "Input", [])]


def test_nodes_of_one_name_are_told_apart(tmp_path):
    inner = C.tanh(C.placeholder(), name="same")
    outer, below, placeholder = graph_of(C.relu(inner, name="same"), tmp_path).node
    assert (outer.name, list(outer.input)) == ("same", [f"same_{inner.root_function.uid}"])
    assert below.name == outer.input[0] and placeholder.op == "Placeholder"
    assert placeholder.attr["shape"].shape.unknown_rank


def test_tags_are_written_as_given_and_arrays_of_one_element_are_numbers(tmp_path):
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path))
    writer.write_value("mean of W[0]/ü", np.array([[2.5]]), 1)
    writer.close()
    assert events(tmp_path) == [(1, "mean of W[0]/ü", 2.5)]


def test_images_are_blue_green_red_with_intensities_to_255(tmp_path):
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path))
    image = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    writer.write_image("colour", {"x": np.stack([image, image + 300])}, 4)
    writer.write_image("grey", {"x": image[None, :1]}, 5)
    writer.close()
    (step, tag, shown), (_, second, white), (_, _, grey) = events(tmp_path)
    assert (step, tag, second) == (4, "colour/image/0", "colour/image/1")
    np.testing.assert_array_equal(shown, image[::-1].transpose(1, 2, 0))
    np.testing.assert_array_equal(white, np.full((4, 5, 3), 255))
    np.testing.assert_array_equal(grey if grey.ndim == 2 else grey[..., 0], image[0])


def test_tensorboard_reads_everything(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    x = C.input_variable(3)
    model = C.tanh(x * C.Parameter(3))
    writer = TensorBoardProgressWriter(freq=1, log_dir=str(tmp_path), model=model)
    writer.update_training(2, 3, 1)
    writer.write_image("seen", {x: np.zeros((1, 3, 4, 5))}, 2)
    writer.write_histogram("weights", np.linspace(-1, 2, 31).reshape(1, 31), 3)
    writer.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(s.step, s.value) for s in events.Scalars("minibatch/avg_loss")] == [(1, 1.5)]
    (image,) = events.Images("seen/image/0")
    assert (image.step, image.width, image.height) == (2, 5, 4)
    (histogram,) = events.Histograms("weights")
    spread = histogram.histogram_value
    assert (histogram.step, spread.min, spread.max, spread.num, sum(spread.bucket)) == (3, -1, 2, 31, 31)
    assert spread.sum == pytest.approx(15.5)
    assert {node.op for node in events.Graph().node} == {"Input", "Parameter", "ElementTimes", "Tanh"}


@pytest.mark.parametrize("values", [[], [1, np.nan]])
def test_a_histogram_needs_finite_elements(tmp_path, values):
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path))
    with pytest.raises(ValueError, match=f"'it': needs finite elements, but . of {len(values)} are"):
        writer.write_histogram("it", values, 0)
    writer.close()


@pytest.mark.parametrize("shape", [(4, 5), (2, 2, 4, 5), (2, 3, 4)])
def test_images_of_other_shapes_are_refused(tmp_path, shape):
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"write_image 'it': a batch has shape .*1 or 3 channels"):
        writer.write_image("it", {"x": np.zeros(shape)}, 0)
    writer.close()


def test_only_worker_0_writes(tmp_path):
    other = TensorBoardProgressWriter(log_dir=str(tmp_path / "a"), rank=1)
    other.write_value("x", 1, 1)
    other.write_image("x", {"x": np.zeros((1, 1, 2, 2))}, 1)
    other.flush()
    other.close()
    assert not (tmp_path / "a").exists()
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path / "b"), rank=0)
    writer.write_value("x", 1, 1)
    writer.flush()
    assert events(tmp_path / "b") == [(1, "x", 1)]
    writer.close()


@pytest.mark.parametrize("use", [lambda w: w.write_value("x", 1, 1), lambda w: w.flush(), lambda w: w.close()])
def test_a_closed_writer_cannot_be_used(tmp_path, use):
    writer = TensorBoardProgressWriter(log_dir=str(tmp_path))
    writer.close()
    with pytest.raises(RuntimeError, match="closed"):
        use(writer)


def test_without_tensorboardx_the_error_has_the_pip_command():
    script = """
import sys
sys.modules["tensorboardX"] = None
import cntkjax.logging
try:
    cntkjax.logging.TensorBoardProgressWriter()
except ImportError as error:
    assert 'pip install "cntkjax[tensorboard]"' in str(error)
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})
