"""The operations, in CNTK's names and signatures.

Each file of operations lists its public names in ``__all__``; an operation is added there, and nowhere else.
"""

from ..graph.axis import Axis
from ..graph.public import operators as _operators
from . import functions, sequence
from ._activations import *  # noqa: F403
from ._ctc import *  # noqa: F403
from ._elementwise import *  # noqa: F403
from ._gradient import *  # noqa: F403
from ._image import *  # noqa: F403
from ._indexing import index as _index
from ._naming import name_errors as _name_errors
from ._native import *  # noqa: F403
from ._product import *  # noqa: F403
from ._random import *  # noqa: F403
from ._reduce import *  # noqa: F403
from ._rnnstack import *  # noqa: F403
from ._sequence import *  # noqa: F403
from ._shape import *  # noqa: F403
from ._structure import *  # noqa: F403
from ._user_functions import user_function
from ._variables import *  # noqa: F403
from .functions import BlockFunction, CloneMethod, Function, ModelFormat, load_model

_name_errors(globals(), f"{__name__}._", leave=("._variables", "._native"))
_OPERATORS = (
    "abs", "element_divide", "element_times", "minus", "negate", "plus", "pow", "reciprocal", "slice", "splice",
    "square", "times",
)
_operators.update({name: globals()[name] for name in _OPERATORS}, index=_index)
