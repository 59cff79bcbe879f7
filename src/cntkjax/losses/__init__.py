"""Loss functions, in CNTK's names and signatures."""

from ..graph.axis import Axis
from ..graph.seed import AUTO_SEED as auto_select
from ..ops import CloneMethod, Function, parameter, softmax, times
from ..variables import Constant, Parameter, Variable
from ._lattice import lattice_sequence_with_softmax
from ._losses import (
    binary_cross_entropy,
    cosine_distance,
    cosine_distance_with_negative_samples,
    cross_entropy_with_softmax,
    fmeasure,
    lambda_rank,
    squared_error,
    weighted_binary_cross_entropy,
)
from ._many_classes import hierarchical_softmax_layer, nce_loss

