"""The operations, in CNTK's names and signatures.

Operands are functions, variables, NumPy arrays, numbers or lists of numbers. Shapes are those of one sample; the batch
axis and the sequence axis come on top (docs/axes.md).
"""

# Each file of operations lists its public names in `__all__`; an operation is added there, and nowhere else.

from ..graph.axis import Axis
from ..graph.public import operators as _operators
from . import functions, sequence
from ._activations import *
from ._ctc import *
from ._elementwise import *
from ._environment import *
from ._gradient import *
from ._image import *
from ._indexing import index as _index
from ._native import *
from ._product import *
from ._random import *
from ._reduce import *
from ._rnnstack import *
from ._sequence import *
from ._shape import *
from ._structure import *
from ._user_functions import user_function
from ._variables import *
from .functions import BlockFunction, CloneMethod, Function, ModelFormat, load_model

_OPERATORS = (
    "abs", "element_divide", "element_times", "minus", "negate", "plus", "pow", "reciprocal", "slice", "splice",
    "square", "times",
)
_operators.update({name: globals()[name] for name in _OPERATORS}, index=_index)
