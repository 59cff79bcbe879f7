"""Functions of CNTK's compiled module: those of the Python API with another order of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from .. import ops
from .._typing import ShapeLike
from ..core import NDArrayView
from ..device import Device
from ..eval import Evaluator
from ..graph.axis import BATCH, SEQUENCE, Axis
from ..initializer import Initializer
from ..io import (
    Base64ImageDeserializer,
    CBFDeserializer,
    CTFDeserializer,
    ImageDeserializer,
    MinibatchSource,
    StreamConfiguration,
    StreamDef,
    StreamDefs,
)
from ..io._config import MinibatchSourceConfig
from ..io._streams import DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS, INFINITELY_REPEAT
from ..learners import Learner, momentum_as_time_constant_schedule
from ..logging import TensorBoardProgressWriter
from ..ops._operand import Operand
from ..ops.functions import Function, ModelFormat
from ..train.distributed import (
    DistributedLearner,
    block_momentum_distributed_learner,
    data_parallel_distributed_learner,
)
from ..train.trainer import Trainer
from ..train.training_session import DataUnit, TrainingSession
from ..variables import Variable

_MINIBATCH_SIZE = 4096  # samples


def Function_load(model: Any, device: Device = None, format: int = 0) -> Function:
    """`Function.load` with the number of the format."""
    return Function.load(model, device, ModelFormat(format))


# ---- training


def create_evaluator(function: Function, progress_writers: Sequence[Any] = ()) -> Evaluator:
    """An evaluator of a function."""
    return Evaluator(function, list(progress_writers))


def create_trainer(model: Function | None, loss: Any, *rest: Any) -> Trainer:
    """A trainer from the model, the loss, the metric if there is one, learners, and progress writers.

    >>> import cntkjax as C
    >>> z = C.times(C.input_variable(2), C.parameter((2, 1)))
    >>> create_trainer(z, C.reduce_sum(z), [C.sgd(z.parameters, 0.1)], []).evaluation_function
    """
    metric = rest[0] if not isinstance(rest[0], (list, tuple)) else None
    lists = [list(part) for part in rest if isinstance(part, (list, tuple))]
    return Trainer(model, (loss, metric), *lists)


trainer_impl = create_trainer


def create_training_session(
    trainer: Trainer, source: Any, sizes: Any, inputs: Mapping[Any, Any], max_samples: int, frequency: int = 0,
    unit: int = DataUnit.sample, *configs: Any,
) -> TrainingSession:
    """A training session; `configs` are those of checkpoints, cross validation and the test, in this order."""
    checkpoint, validation, test = (*configs, None, None, None)[:3]
    interval = (frequency, DataUnit(unit))
    return TrainingSession(trainer, source, sizes, inputs, max_samples, interval, checkpoint, validation, test)


def create_data_parallel_distributed_learner(
    communicator: object, learner: Learner, distributed_after: int = 0,
    use_async_buffered_parameter_update: bool = False,
) -> DistributedLearner:
    """A learner whose gradients are summed over all workers."""
    return data_parallel_distributed_learner(learner, distributed_after, 32, use_async_buffered_parameter_update)


def create_block_momentum_distributed_learner(
    communicator: object, learner: Learner, distributed_after: int, block_size: int, *options: Any
) -> DistributedLearner:
    """A learner whose models are merged after each block. `options`: the momentum as a time constant, if one is given,
    then whether it is Nesterov's, whether a block begins without momentum, and the rate of a block."""
    time_constant = None if isinstance(options[0] if options else True, bool) else options[0]
    rest = options if time_constant is None else options[1:]
    defaults: tuple[Any, ...] = (True, True, 1.0)
    nesterov, resets, rate = (*rest, *defaults[len(rest):])
    return block_momentum_distributed_learner(
        learner, block_size, time_constant, nesterov, resets, rate, distributed_after
    )


def input_variable(shape: ShapeLike, *options: Any) -> Variable:
    """An input. `options`: whether it is sparse, its element type, whether it needs a gradient, its name, its axes.

    Only the element type is required; by default there is a sequence axis.

    >>> input_variable((2, 3), 1, "q")
    Input('q', [#, *], [2 x 3])
    """
    flags = [option for option in options if isinstance(option, bool)]
    sparse = isinstance(options[0], bool)
    data_type = next(option for option in options if type(option) is int)
    axes = next((part for part in options if isinstance(part, (list, tuple))), (BATCH, SEQUENCE))
    needs_gradient = any(flags[1:] if sparse else flags)
    return ops.input_variable(shape, data_type, needs_gradient, sparse and flags[0], axes, _text(options))


def placeholder_variable(*options: Any) -> Variable:
    """A placeholder. `options`: its shape, element type, name and axes, each optional.

    >>> placeholder_variable((2, 3), "a")
    Placeholder('a', [???], [2 x 3])
    """
    lists = [option for option in options if isinstance(option, (list, tuple))]
    axes = next((part for part in lists if part and isinstance(part[0], Axis)), None)
    return ops.placeholder(next((part for part in lists if part is not axes), None), axes, _text(options))


def _text(options: tuple[Any, ...]) -> str:
    return next((option for option in options if isinstance(option, str)), "")


def constant_like(x: Operand, value: float, name: str = "") -> Function:
    """A constant of the shape and axes of an operand."""
    return ops.plus(ops.zeros_like(x), value, name)


def pad(
    x: Operand, mode: int, head: Sequence[int], foot: Sequence[int], value: float = 0.0, name: str = ""
) -> Function:
    """`pad` by numbers for each axis, the fastest one first.

    >>> pad([[1.0, 2.0]], 0, [1, 0], [0, 1]).eval()
    array([[0., 1., 2.],
           [0., 0., 0.]], dtype=float32)
    """
    return ops.pad(x, [*zip(head, foot, strict=True)][::-1], mode, value, name)


# ---- writers and readers


def TensorBoardFileWriter(log_dir: str, model: Function | None = None) -> TensorBoardProgressWriter:
    """A writer of numbers, images and the model's graph for TensorBoard."""
    return TensorBoardProgressWriter(log_dir=log_dir, model=model)



def _defined(streams: Sequence[StreamConfiguration]) -> dict[str, Any]:
    return {
        s.m_stream_name: StreamDef(
            s.m_stream_alias or s.m_stream_name, s.m_dim, s.m_is_sparse, defines_mb_size=s.m_defines_mb_size
        ) for s in streams
    }


def ctf_deserializer(filename: str, streams: Sequence[StreamConfiguration]) -> dict[str, Any]:
    """Read CNTK text format.

    >>> ctf_deserializer("train.ctf", [StreamConfiguration("x", 2)])["input"]["x"]["dim"]
    2
    """
    return CTFDeserializer(filename, _defined(streams))


def cbf_deserializer(filename: str, streams: Sequence[StreamConfiguration] = ()) -> dict[str, Any]:
    """Read CNTK binary format."""
    return CBFDeserializer(filename, _defined(streams))


def _image_deserializer(public: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def make(filename: str, label: str, labels: int, image: str, transforms: Sequence[Any] = ()) -> dict[str, Any]:
        images = StreamDef("image", transforms=list(transforms))
        return public(filename, StreamDefs(**{label: StreamDef("label", labels), image: images}))
    make.__doc__ = f"`{public.__name__}` from a file, the label's stream and size, the image's stream and transforms."
    return make


image_deserializer = _image_deserializer(ImageDeserializer)
base64_image_deserializer = _image_deserializer(Base64ImageDeserializer)


def create_composite_minibatch_source(config: MinibatchSourceConfig) -> MinibatchSource:
    """A source with these settings.

    Errors: those of `MinibatchSource`.
    """
    return MinibatchSource(
        config.deserializers, config.max_samples, config.max_sweeps, config.randomization_window_in_chunks,
        config.randomization_window_in_samples, config.randomization_seed, config.trace_level,
        config.is_multithreaded.get(), config.is_frame_mode_enabled, config.truncation_length, config.randomize,
        config.max_errors,
    )


def text_format_minibatch_source(
    filename: str, streams: Sequence[StreamConfiguration], epoch_size: int = INFINITELY_REPEAT, randomize: bool = True,
    randomization_window: int = DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS, sample_based_randomization_window: bool = False,
) -> MinibatchSource:
    """A source that reads CNTK text format, and ends after `epoch_size` samples."""
    windows = (0, randomization_window) if sample_based_randomization_window else (randomization_window, 0)
    return MinibatchSource(
        ctf_deserializer(filename, streams), epoch_size, INFINITELY_REPEAT, *windows, randomize=randomize
    )


def compute_input_per_dim_means_and_inv_std_devs(
    source: MinibatchSource, computed: MutableMapping[Any, Any], device: Device = None
) -> None:
    """Store means and inverse standard deviations of streams in `computed`, as pairs of array views.

    Shapes: those of samples. The source is read to its end.
    Errors: ValueError for one that never ends.

    >>> import numpy as np
    >>> from cntkjax.io import MinibatchSourceFromData
    >>> source = MinibatchSourceFromData({"x": np.array([[1, 2], [3, 2], [5, 2]], np.float32)}, max_samples=3)
    >>> computed = {source.streams.x: None}
    >>> compute_input_per_dim_means_and_inv_std_devs(source, computed)
    >>> computed[source.streams.x][0].asarray()
    array([3., 2.], dtype=float32)
    """
    if source.is_infinite():
        raise ValueError("compute_input_per_dim_means_and_inv_std_devs: the source never ends; give it max_sweeps=1")
    parts: dict[Any, list[np.ndarray]] = {stream: [] for stream in computed}
    while minibatch := source.get_next_minibatch(_MINIBATCH_SIZE):
        for stream in parts:
            rows = minibatch[stream].ragged.data
            parts[stream].append(rows.to_dense() if hasattr(rows, "to_dense") else rows)
    for stream, pieces in parts.items():
        samples = np.concatenate(pieces).astype(np.float64)
        spread = samples.std(0)
        inverse = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
        computed[stream] = tuple(NDArrayView.from_dense(a.astype(np.float32)) for a in (samples.mean(0), inverse))


# ---- initial values


def momentum_from_time_constant(time_constant: float) -> float:
    """The momentum per sample that decays to 1/e after this many samples; 0 for none."""
    return momentum_as_time_constant_schedule(time_constant)[0]


def constant_initializer(value: float = 0.0) -> Initializer:
    """An initializer that fills an array with a number.

    >>> import cntkjax as C
    >>> C.parameter((2,), init=constant_initializer(3)).value
    array([3., 3.], dtype=float32)
    """
    return Initializer(initializerType="constant", value=float(value))
