"""Loss functions, in CNTK's names and signatures."""

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
