"""Ready-made models."""

from ...default_options import default_options, default_override_or, get_default_override
from ...initializer import glorot_uniform
from ...ops.functions import Function
from ..blocks import Stabilizer
from ..layers import Dense, Label
from ..sequence import PastValueWindow
from . import attention
from .attention import AttentionModel
