"""Random tensors, in CNTK's names and signatures."""

from ..default_options import default_override_or
from ..graph.seed import AUTO_SEED as auto_select
from ._random import (
    bernoulli,
    bernoulli_like,
    gumbel,
    gumbel_like,
    normal,
    normal_like,
    uniform,
    uniform_like,
)

