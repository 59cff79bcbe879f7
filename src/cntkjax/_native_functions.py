"""Functions of CNTK's compiled module that make, from arguments of its own order, what those of the Python API make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .eval import Evaluator
from .initializer import Initializer
from .io import (
    Base64ImageDeserializer,
    CBFDeserializer,
    CTFDeserializer,
    ImageDeserializer,
    MinibatchSource,
    StreamConfiguration,
    StreamDef,
    StreamDefs,
)
from .io._config import MinibatchSourceConfig
from .io._streams import DEFAULT_RANDOMIZATION_WINDOW_IN_CHUNKS, INFINITELY_REPEAT
from .logging import TensorBoardProgressWriter
from .ops.functions import Function, ModelFormat
from .train.distributed import block_momentum_distributed_learner, data_parallel_distributed_learner
from .train.trainer import Trainer
from .train.training_session import DataUnit, TrainingSession


def Function_load(model: Any, device: Any = None, format: int = 0) -> Function:
    """`Function.load` with the number of the format."""
    return Function.load(model, device, ModelFormat(format))


# ---- what trains


def create_evaluator(function: Any, progress_writers: Sequence[Any] = ()) -> Evaluator:
    """An evaluator of a function."""
    return Evaluator(function, list(progress_writers))


def create_trainer(model: Any, loss: Any, *rest: Any) -> Trainer:
    """A trainer from the model, the loss, the metric if there is one, learners, and progress writers.

    Example:
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
    every = (frequency, DataUnit(unit))
    return TrainingSession(trainer, source, sizes, inputs, max_samples, every, checkpoint, validation, test)


def create_data_parallel_distributed_learner(
    communicator: Any, learner: Any, distributed_after: int = 0, use_async_buffered_parameter_update: bool = False
) -> Any:
    """A learner whose gradients are summed over all workers."""
    return data_parallel_distributed_learner(learner, distributed_after, 32, use_async_buffered_parameter_update)


def create_block_momentum_distributed_learner(
    communicator: Any, learner: Any, distributed_after: int, block_size: int, *options: Any
) -> Any:
    """A learner whose models are merged after each block. `options`: the momentum as a time constant, if one is given,
    then whether it is Nesterov's, whether a block begins without momentum, and the rate of a block."""
    time_constant = None if isinstance(options[0] if options else True, bool) else options[0]
    rest = options if time_constant is None else options[1:]
    defaults: tuple[Any, ...] = (True, True, 1.0)
    nesterov, resets, rate = (*rest, *defaults[len(rest):])
    return block_momentum_distributed_learner(
        learner, block_size, time_constant, nesterov, resets, rate, distributed_after
    )


# ---- what writes and reads


def TensorBoardFileWriter(log_dir: str, model: Any = None) -> TensorBoardProgressWriter:
    """What writes numbers, images and the model's graph into a folder for TensorBoard."""
    return TensorBoardProgressWriter(log_dir=log_dir, model=model)



def _defined(streams: Sequence[StreamConfiguration]) -> dict[str, Any]:
    return {
        s.m_stream_name: StreamDef(
            s.m_stream_alias or s.m_stream_name, s.m_dim, s.m_is_sparse, defines_mb_size=s.m_defines_mb_size
        ) for s in streams
    }


def ctf_deserializer(filename: str, streams: Sequence[StreamConfiguration]) -> dict[str, Any]:
    """Reads CNTK text format.

    Example:
        >>> ctf_deserializer("train.ctf", [StreamConfiguration("x", 2)])["input"]["x"]["dim"]
        2
    """
    return CTFDeserializer(filename, _defined(streams))


def cbf_deserializer(filename: str, streams: Sequence[StreamConfiguration] = ()) -> dict[str, Any]:
    """Reads CNTK binary format."""
    return CBFDeserializer(filename, _defined(streams))


def _image_deserializer(public: Any) -> Any:
    def make(filename: str, label: str, labels: int, image: str, transforms: Sequence[Any] = ()) -> dict[str, Any]:
        images = StreamDef("image", transforms=list(transforms))
        return public(filename, StreamDefs(**{label: StreamDef("label", labels), image: images}))
    make.__doc__ = f"`{public.__name__}` from a file, the label's stream and size, the image's stream and transforms."
    return make


image_deserializer = _image_deserializer(ImageDeserializer)
base64_image_deserializer = _image_deserializer(Base64ImageDeserializer)


def create_composite_minibatch_source(config: MinibatchSourceConfig) -> MinibatchSource:
    """A source as the settings say it.

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


# ---- how parameters begin


def constant_initializer(value: float = 0.0) -> Initializer:
    """One number everywhere.

    Example:
        >>> import cntkjax as C
        >>> C.parameter((2,), init=constant_initializer(3)).value
        array([3., 3.], dtype=float32)
    """
    return Initializer(initializerType="constant", value=float(value))
