"""The learners that a block describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..engine.plan.parts import resolve
from ..graph.function import nodes
from ..graph.proxy import unwrap
from ..learners import (
    Learner,
    adagrad,
    fsadagrad,
    learning_parameter_schedule_per_sample,
    momentum_schedule,
    momentum_schedule_per_sample,
    momentum_sgd,
    nesterov,
    rmsprop,
    sgd,
)
from ..ops.functions import Function
from ..parallel import workers
from ..parallel.quantization import NUMBERS_OF_BITS
from ..train.distributed import (
    DistributedLearner,
    block_momentum_distributed_learner,
    data_parallel_distributed_learner,
)
from ..train.trainer import Trainer
from ..variables import Parameter
from .settings import BlockSettings

Factors: TypeAlias = Mapping[Any, float]  # of learning rates, by parameters


def learners_of(
    settings: BlockSettings, loss: Function, epoch_size: Callable[[], int], factors: Factors
) -> list[Learner]:
    """Learners of all parameters of the loss: one for those with the same factor and the same regularization.

    `epoch_size`: gives the number of samples in an epoch, which may have to be counted.
    Their rate and momentum are set anew for each epoch.
    Errors: ConfigError for keys that cannot be combined; RuntimeError for factors that rmsprop does not allow.
    """
    parameters: list[Any] = list(loss.parameters)
    left_out: set[Any] = set()
    if settings["disableWkInBatchNormal"]:
        left_out = normalization_parameters(loss)
    groups: dict[tuple[bool, float], list[Any]] = {}
    for p in parameters:
        groups.setdefault((p not in left_out, factors.get(p, 1.0)), []).append(p)
    return [
        _distributed(settings, _learner(settings, group, is_regularized), epoch_size)
        for (is_regularized, _), group in sorted(groups.items(), reverse=True)
    ]


def normalization_parameters(loss: Function) -> set[Any]:
    """Scales and biases of batch normalization."""
    normalizations = [n for n in nodes([loss.root_function], into_blocks=True) if n.op_name == "BatchNormalization"]
    return {resolve(v) for node in normalizations if not node.is_block for v in node.node_inputs[1:3]}


def _learner(settings: BlockSettings, parameters: list[Parameter], is_regularized: bool) -> Learner:
    rates = settings.rates
    rate = learning_parameter_schedule_per_sample(1.0 if rates is None else rates.at(0))
    momentum = momentum_schedule_per_sample(momentum_per_sample(settings.momentum.at(0)))
    options: dict[str, Any] = {
        "l1_regularization_weight": settings["L1RegWeight"] * is_regularized,
        "l2_regularization_weight": settings["L2RegWeight"] * is_regularized,
        "gaussian_noise_injection_std_dev": settings["gaussianNoiseInjectStd"],
        "gradient_clipping_threshold_per_sample": settings["clippingThresholdPerSample"],
        "gradient_clipping_with_truncation": settings["gradientClippingWithTruncation"],
    }
    match settings["gradUpdateType"]:
        case "adagrad":
            return adagrad(parameters, rate, settings["normWithAveMultiplier"], **options)
        case "rmsProp":
            return rmsprop(
                parameters, rate, settings["rms_gamma"], settings["rms_wgt_inc"], settings["rms_wgt_dec"],
                settings["rms_wgt_max"], settings["rms_wgt_min"], settings["normWithAveMultiplier"], **options,
            )
        case "fsAdaGrad":
            return fsadagrad(parameters, rate, momentum, **options)
    if not any(constant for _, constant in settings.momentum.entries):
        return sgd(parameters, rate, **options)
    return (nesterov if settings["useNAG"] else momentum_sgd)(parameters, rate, momentum, **options)


def momentum_per_sample(constant: float) -> float:
    """The momentum of a time constant in samples."""
    return math.exp(-1 / constant) if constant else 0.0


def set_rate(trainer: Trainer, factors: Factors, rate: float) -> None:
    """Set the learning rate per sample of all learners from now on, times the factor of their parameters."""
    for learner in trainer.parameter_learners:
        factor = factors.get(learner.parameters[0], 1.0)
        learner.reset_learning_rate(learning_parameter_schedule_per_sample(rate * factor))


def set_momentum(trainer: Trainer, constant: float, steps: int | None = None) -> None:
    """Set the time constant of all learners' momentum from now on, in samples of the loss.

    `steps`: set the momentum of the next minibatch, which has this many time steps, whatever the loss counts.
    """
    momentum = momentum_per_sample(constant)
    for learner in trainer.parameter_learners:
        learner.reset_momentum(
            momentum_schedule_per_sample(momentum) if steps is None else momentum_schedule(momentum**steps)
        )


class _SharingLearner(DistributedLearner):
    """One whose workers share each minibatch, also where they merge models, as of CNTK's tool (log of ParallelBM)."""

    def minibatch_size_scale_factor(self) -> int:
        """The size of a minibatch is that of all workers together."""
        return 1


def _distributed(settings: BlockSettings, learner: Learner, epoch_size: Callable[[], int]) -> Learner:
    """The learner as parallelTrain says."""
    method = settings["parallelizationMethod"]
    if method == "none":
        return learner
    after = _samples_before(settings, epoch_size)
    if method == "dataParallelSGD":
        bits = _exchanged_bits(max(bits for _, bits in settings["gradientBits"].entries))
        return data_parallel_distributed_learner(learner, after, bits)
    if method == "modelAveragingSGD":
        merging = block_momentum_distributed_learner(
            learner, settings["modelAveragingSGD.blockSize"], 0, use_nestrov_momentum=False,
            block_learning_rate=1 / workers.size(), distributed_after=after,
        )
    elif method == "dataParallelASGD":
        merging = block_momentum_distributed_learner(
            learner, settings["dataParallelASGD.blockSize"], 0, use_nestrov_momentum=False,
            reset_sgd_momentum_after_aggregation=False, distributed_after=after,
        )
    else:
        merging = block_momentum_distributed_learner(
            learner, settings["blockMomentumSGD.blockSize"], settings["blockMomentumAsTimeConstant"],
            settings["useNesterovMomentum"], settings["resetSGDMomentum"], settings["blockLearningRate"], after,
        )
    return _SharingLearner.wrap(unwrap(merging))


def _exchanged_bits(bits: int) -> int:
    """The smallest number of bits that gradients can be exchanged in and that is at least this one, or the largest."""
    return next((exchanged for exchanged in NUMBERS_OF_BITS if bits <= exchanged), 32)


def _samples_before(settings: BlockSettings, epoch_size: Callable[[], int]) -> int:
    """The number of samples before parallelizationStartEpoch."""
    epochs = settings["parallelizationStartEpoch"] - 1
    return int(epochs * epoch_size()) if epochs else 0


def set_dropout_rate(loss: Function, rate: float) -> None:
    """Set the rate of all Dropout nodes."""
    for node in nodes([loss.root_function], into_blocks=True):
        if "dropoutRate" in node.node_attributes and node.node_attributes["dropoutRate"] != rate:
            node.set_attribute("dropoutRate", rate)  # type: ignore[attr-defined]
