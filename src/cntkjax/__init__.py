"""The CNTK 2.7 Python API on JAX."""

from . import core, ops, variables
from .graph.shape import FREE as FreeDimension
from .graph.shape import INFERRED as InferredDimension
from .core import Value, asarray
from .ops import *
from .ops import sequence
from .variables import Constant, Parameter, Variable

__version__ = "2.7"
