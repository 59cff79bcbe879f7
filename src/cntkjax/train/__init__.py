"""Training: the trainer, training sessions, and distributed learners."""

from . import _criterion, distributed, trainer
from .distributed import (
    Communicator,
    DistributedLearner,
    WorkerDescriptor,
    block_momentum_distributed_learner,
    data_parallel_distributed_learner,
    mpi_communicator,
)
from .trainer import MinibatchData, Trainer, use_default_device
from .training_session import (
    CheckpointConfig,
    CrossValidationConfig,
    DataUnit,
    TestConfig,
    TrainingSession,
    minibatch_size_schedule,
    training_session,
)

