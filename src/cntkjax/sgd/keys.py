"""The keys of the SGD block: one table, from which the parser, its messages, `SGD.describe` and the documentation come.

Source: CNTK's page "SGD Block". Defaults are as written there, and are parsed like values of users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The type of a key's value; the text says what is allowed."""

    TEXT = "a text, such as \"models/net.dnn\""
    FLAG = "true or false"
    INTEGER = "a whole number, such as 256 or 4*1024"
    NUMBER = "a number, such as 0.5, 1e-4 or (infinity)"
    INTEGERS = "whole numbers by epoch, such as 256 or 128*2:1024 (128 in two epochs, then 1024)"
    NUMBERS = "numbers by epoch, such as 0.01 or 0.025*10:0.00625 (0.025 in ten epochs, then 0.00625)"
    CHOICE = "one of"


@dataclass(frozen=True)
class Key:
    """A key of the block, or of a block inside it.

    `section`: the names of the blocks around it, from the outermost: () is the SGD block itself. `default`: as in the
    document; None if it has none. `least`: the smallest value allowed; `below`: values are smaller than that.
    """

    name: str
    kind: Kind
    default: str | None
    effect: str
    python: str
    section: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    below: float | None = None

    @property
    def id(self) -> str:
        """The name, with the block's name where several blocks have such a key."""
        return f"{self.section[-1]}.{self.name}" if self.name == "blockSize" else self.name

    @property
    def allowed(self) -> str:
        """What values may be, for messages."""
        if self.kind is Kind.CHOICE:
            return f"one of {', '.join(self.choices)}"
        bounds = [f"at least {self.least:g}"] if self.least is not None else []
        bounds += [f"below {self.below:g}"] if self.below is not None else []
        return f"{self.kind.value}{', ' * bool(bounds)}{' and '.join(bounds)}"


AUTO, PARALLEL = ("autoAdjust",), ("parallelTrain",)
METHODS = ("dataParallelSGD", "blockMomentumSGD", "modelAveragingSGD", "dataParallelASGD")
DATA_PARALLEL, BLOCK_MOMENTUM, MODEL_AVERAGING, ASYNCHRONOUS = ((*PARALLEL, name) for name in METHODS)
WARM_UP = (*ASYNCHRONOUS, "adjustLearningRateAtBeginning")
SECTIONS = ((), AUTO, PARALLEL, DATA_PARALLEL, BLOCK_MOMENTUM, MODEL_AVERAGING, ASYNCHRONOUS, WARM_UP)


def _key(
    name: str, kind: Kind | Sequence[str], default: str | None, effect: str, python: str = "",
    section: tuple[str, ...] = (), least: float | None = None, below: float | None = None,
) -> Key:
    choices = () if isinstance(kind, Kind) else tuple(kind)
    return Key(
        name, kind if isinstance(kind, Kind) else Kind.CHOICE, default, effect, python, section, choices, least, below
    )


KEYS: tuple[Key, ...] = (
    # Training process control
    _key("modelPath", Kind.TEXT, None,
         "the final model; `modelPath.N` and `.ckp` are the checkpoint after epoch N, from which a run goes on",
         "`CheckpointConfig(filename)`"),
    _key("trainCriterionNodeName", Kind.TEXT, None, "name of the node that is minimized; the default is the criterion "
         "given, or the only node with the operation of a loss", "`model.find_by_name(name)`"),
    _key("evalCriterionNodeName", Kind.TEXT, None, "name of the node that is reported as metric",
         "`model.find_by_name(name)`"),
    _key("maxEpochs", Kind.INTEGER, None, "training ends after this many epochs; has to be given",
         "`training_session(max_samples=maxEpochs * epochSize)`", least=1),
    _key("epochSize", Kind.INTEGER, "0", "samples in an epoch; 0: one sweep over the data",
         "`epoch_size=` of schedules and sessions", least=0),
    _key("minibatchSize", Kind.INTEGERS, "256", "samples between updates, of all workers, by epoch",
         "`minibatch_size_schedule`", least=1),
    _key("truncated", Kind.FLAG, "false", "truncated back-propagation through time; the source cuts the sequences",
         "`MinibatchSource(truncation_length=)`"),
    _key("dropoutRate", Kind.NUMBERS, None, "rate of all Dropout nodes, by epoch; without it nodes keep their rates "
         "(0 in models of CNTK 1)", "`node.set_attribute('dropoutRate', rate)`", least=0, below=1),
    _key("maxTempMemSizeInSamplesForCNN", Kind.INTEGER, "0", "accepted, without effect: XLA plans the memory of "
         "convolutions", least=0),
    _key("keepCheckPointFiles", Kind.FLAG, "false", "keep the `.ckp` files of earlier epochs",
         "`CheckpointConfig(preserve_all=True)`"),
    _key("saveBestModelPerCriterion", Kind.FLAG, "false", "where there are validation data, the model of the epoch "
         "that is best by each criterion on them is also `modelPath_NAME`"),
    _key("disableWkInBatchNormal", Kind.FLAG, "false", "L1 and L2 regularization leave out scale and bias of batch "
         "normalization", "a second learner for these parameters"),
    # Learning rate and momentum control
    _key("learningRatesPerSample", Kind.NUMBERS, None, "learning rate of each sample's gradient, by epoch",
         "`learning_parameter_schedule_per_sample`", least=0),
    _key("learningRatesPerMB", Kind.NUMBERS, None, "the same for the average over a minibatch: learningRatesPerSample "
         "= learningRatesPerMB / minibatchSize", "`learning_parameter_schedule(r, minibatch_size=M)`", least=0),
    _key("minLearningRatePerSample", Kind.NUMBER, "1e-9", "training ends when the rate falls below it", least=0),
    _key("momentumAsTimeConstant", Kind.NUMBERS, None, "samples after which a gradient has an effect of 1/e, by epoch; "
         "the default is that of momentumPerMB", "`momentum_as_time_constant_schedule`", least=0),
    _key("momentumPerMB", Kind.NUMBERS, None, "the same as a weight per minibatch: momentumAsTimeConstant = "
         "-minibatchSize / ln(momentumPerMB); 0.9 if neither is given", "`momentum_schedule(m, minibatch_size=M)`",
         least=0, below=1),
    _key("useNAG", Kind.FLAG, "false", "Nesterov's accelerated gradient", "`nesterov`"),
    # Automatic learning rate and minibatch size
    _key("autoAdjustLR", ("none", "searchBeforeEpoch", "adjustAfterEpoch"), "none",
         "automatic learning rate: by trials before each epoch, or by the improvement after each", "", AUTO),
    _key("autoAdjustMinibatch", Kind.FLAG, "false", "enlarge minibatches after the epochs that minibatchSize lists", "",
         AUTO),
    _key("reduceLearnRateIfImproveLessThan", Kind.NUMBER, "0", "adjustAfterEpoch: reduce the rate if the criterion "
         "improves by less than this fraction", "", AUTO),
    _key("continueReduce", Kind.FLAG, "false", "adjustAfterEpoch: once the rate has been reduced, reduce it after "
         "every interval; documented in CNTK's technical report MSR-TR-2014-112", "", AUTO),
    _key("learnRateDecreaseFactor", Kind.NUMBER, "0.618", "adjustAfterEpoch: the factor of a reduction", "", AUTO,
         least=0, below=1),
    _key("increaseLearnRateIfImproveMoreThan", Kind.NUMBER, "(infinity)", "adjustAfterEpoch: increase the rate if the "
         "criterion improves by more than this fraction", "", AUTO),
    _key("learnRateIncreaseFactor", Kind.NUMBER, "1.382", "adjustAfterEpoch: the factor of an increase", "", AUTO,
         least=1),
    _key("loadBestModel", Kind.FLAG, "true", "adjustAfterEpoch: repeat epochs that make the criterion worse",
         "`Trainer.restore_from_checkpoint`", AUTO),
    _key("learnRateAdjustInterval", Kind.INTEGER, "1", "adjustAfterEpoch: epochs between adjustments, whose criteria "
         "are averaged", "", AUTO, least=1),
    _key("useCVSetControlLRIfCVExists", Kind.FLAG, "true", "adjustAfterEpoch: use the criterion on validation data, "
         "if there are any", "`CrossValidationConfig(callback=)`", AUTO),
    _key("useEvalCriterionControlLR", Kind.FLAG, "false", "adjustAfterEpoch: use the metric instead of the loss", "",
         AUTO),
    _key("numMiniBatch4LRSearch", Kind.INTEGER, "500", "the time of the trials before an epoch at most, in minibatches "
         "of training; besides, a fifth of the whole training", "", AUTO, least=1),
    _key("numSamples4Search", Kind.INTEGER, "0", "the same in samples of minibatches as large as those of the "
         "first epoch; 0: as numMiniBatch4LRSearch says", "", AUTO, least=0),
    _key("numPrevLearnRates", Kind.INTEGER, "5", "searchBeforeEpoch: how many previous rates set the range of the "
         "search", "", AUTO, least=1),
    _key("numBestSearchEpoch", Kind.INTEGER, "1", "searchBeforeEpoch: in this many epochs the best rate is searched, "
         "then a sufficient one", "", AUTO, least=0),
    _key("minibatchSizeTuningFrequency", Kind.INTEGER, "1", "autoAdjustMinibatch: epochs between searches", "", AUTO,
         least=1),
    _key("minibatchSizeTuningMax", Kind.INTEGER, "1048576", "autoAdjustMinibatch: the largest size", "", AUTO, least=1),
    _key("minibatchSearchCriterionErrorMargin", Kind.NUMBER, "1", "autoAdjustMinibatch: how many percent worse the "
         "criterion of a larger size may be", "", AUTO, least=0),
    # Parallel training
    _key("parallelizationMethod", ("none", *METHODS), "none",
         "how the workers of mpiexec train together", "`distributed learners`", PARALLEL),
    _key("parallelizationStartEpoch", Kind.INTEGER, "1", "the first epoch in which they do", "`distributed_after=`",
         PARALLEL, least=1),
    _key("distributedMBReading", Kind.FLAG, "false", "accepted, without effect: workers share each minibatch",
         "", PARALLEL),
    _key("syncPerfStats", Kind.INTEGER, "0", "minibatches between lines with samples per second; 0: none", "", PARALLEL,
         least=0),
    _key("gradientBits", Kind.INTEGERS, "(8*sizeof(precision))", "bits of an exchanged gradient, by epoch: 1, up to "
         "16, or 32; a single worker has 1 or all, several the most of all epochs",
         "`data_parallel_distributed_learner(num_quantization_bits=)`", DATA_PARALLEL, least=1),
    _key("useBufferedAsyncGradientAggregation", Kind.FLAG, "false", "accepted, without effect: gradients are used in "
         "their own minibatch; CNTK used them later, by a rule that is published nowhere", "", DATA_PARALLEL),
    _key("blockSize", Kind.INTEGER, "(120000 * #workers)", "samples of all workers between two merges of their models",
         "`block_momentum_distributed_learner(block_size=)`", BLOCK_MOMENTUM, least=1),
    _key("blockMomentumAsTimeConstant", Kind.NUMBER, "(-blockSize / log(1 - 1/#workers))", "time constant of the block "
         "momentum, in samples", "`block_momentum_as_time_constant=`", BLOCK_MOMENTUM, least=0),
    _key("resetSGDMomentum", Kind.FLAG, "true", "workers begin each block without momentum",
         "`reset_sgd_momentum_after_aggregation=`", BLOCK_MOMENTUM),
    _key("useNesterovMomentum", Kind.FLAG, "true", "Nesterov's form of the block momentum", "`use_nestrov_momentum=`",
         BLOCK_MOMENTUM),
    _key("blockLearningRate", Kind.NUMBER, "1.0", "rate at which a block's change is added", "`block_learning_rate=`",
         BLOCK_MOMENTUM),
    _key("blockSize", Kind.INTEGER, "(40000 * #workers)", "samples of all workers between two averages of their models",
         "`block_momentum_distributed_learner(block_momentum_as_time_constant=0)`", MODEL_AVERAGING, least=1),
    _key("blockSize", Kind.INTEGER, "(256 * #workers)", "samples of all workers between two sums of the changes that "
         "they made to their models, as a parameter server without delays adds them",
         "`block_momentum_distributed_learner(block_momentum_as_time_constant=0, use_nestrov_momentum=False, "
         "reset_sgd_momentum_after_aggregation=False)`", ASYNCHRONOUS, least=1),
    _key("usePipeline", Kind.FLAG, "false", "accepted, without effect: no worker waits for a server", "", ASYNCHRONOUS),
    _key("adjustCoefficient", Kind.NUMBER, "1", "the rate begins with this fraction of the epoch's, and rises by as "
         "much after each adjustNBMiniBatch minibatches", "", WARM_UP, least=0),
    _key("adjustNBMiniBatch", Kind.INTEGER, "256", "the minibatches of each of these rates", "", WARM_UP, least=1),
    # Gradient control
    _key("gradientClippingWithTruncation", Kind.FLAG, "true", "clip each element of a gradient; otherwise its norm",
         "`gradient_clipping_with_truncation=`"),
    _key("clippingThresholdPerSample", Kind.NUMBER, "(infinity)", "the threshold, for each sample of a minibatch",
         "`gradient_clipping_threshold_per_sample=`", least=0),
    _key("L2RegWeight", Kind.NUMBER, "0", "weight of the L2 regularization, per sample", "`l2_regularization_weight=`",
         least=0),
    _key("L1RegWeight", Kind.NUMBER, "0", "weight of the L1 regularization, per sample", "`l1_regularization_weight=`",
         least=0),
    _key("gaussianNoiseInjectStd", Kind.NUMBER, "0", "standard deviation of noise that is added to the parameters",
         "`gaussian_noise_injection_std_dev=`", least=0),
    _key("gradUpdateType", ("", "none", "adagrad", "rmsProp", "fsAdaGrad"), '""', "the rule of the updates; adagrad "
         "and rmsProp take no momentum", "`sgd`, `momentum_sgd`, `adagrad`, `rmsprop`, `fsadagrad`"),
    _key("normWithAveMultiplier", Kind.FLAG, "true", "adagrad, rmsProp: divide the factors by their mean",
         "`need_ave_multiplier=`"),
    _key("rms_wgt_inc", Kind.NUMBER, "1.2", "rmsProp: factor of a step size while the gradient keeps its sign",
         "`inc=`"),
    _key("rms_wgt_dec", Kind.NUMBER, "0.75", "rmsProp: the factor when the sign changes", "`dec=`"),
    _key("rms_wgt_max", Kind.NUMBER, "10.0", "rmsProp: the largest step size", "`max=`"),
    _key("rms_wgt_min", Kind.NUMBER, "0.1", "rmsProp: the smallest step size", "`min=`"),
    _key("rms_gamma", Kind.NUMBER, "0.99", "rmsProp: smoothing of the variance", "`gamma=`"),
    # Information display
    _key("traceLevel", Kind.INTEGER, "0", "1: print the values of the block and each trial of a search", "", least=0),
    _key("firstMBsToShowResult", Kind.INTEGER, "10", "print each of the first minibatches", "`ProgressPrinter(first=)`",
         least=0),
    _key("numMBsToShowResult", Kind.INTEGER, "10", "minibatches between lines; 0: only epochs",
         "`ProgressPrinter(freq=)`", least=0),
    _key("numMBsToCUDAProfile", Kind.INTEGER, "0", "record a profile of the first minibatches, in `modelPath.profile`",
         "`debugging.start_profiler`", least=0),
    # Precompute
    _key("useAllDataForPreComputedNode", Kind.FLAG, "true", "accepted, without effect: models hold means and variances "
         "as constants, which are computed already"),
    # Gradient check
    _key("gradientCheck", Kind.FLAG, "false", "before each epoch compare gradients with finite differences on a "
         "minibatch; an error if they differ"),
    _key("sigFigs", Kind.INTEGER, "6", "gradientCheck: the significant digits in which they agree", "", least=1),
)

BY_ID = {key.id: key for key in KEYS}


def keys_within(section: tuple[str, ...]) -> list[Key]:
    """The keys that may stand in a block: its own, and those of blocks inside it, which inherit them.

    >>> [key.name for key in keys_within(("parallelTrain", "dataParallelSGD"))]
    ['gradientBits', 'useBufferedAsyncGradientAggregation']
    """
    return [key for key in KEYS if key.section[: len(section)] == section]
