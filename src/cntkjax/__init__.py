"""The CNTK 2.7 Python API on JAX.

>>> import cntkjax as C
>>> C.minus([1, 2, 3], [4, 5, 6]).eval()
array([-3., -3., -3.], dtype=float32)
"""

import os
import sys

from . import _preload  # isort: split

from . import (
    axis,
    core,
    debugging,
    device,
    eval,
    initializer,
    internal,
    interop,
    io,
    layers,
    learners,
    logging,
    losses,
    metrics,
    misc,
    ops,
    random,
    tensor,
    train,
    variables,
)
from .compat import cntk_py, cntk_py_init
from .compat.attach import attach
from .core import NDArrayView, Value, asarray, asvalue
from .default_options import (
    default_options,
    default_options_for,
    default_override_or,
    get_default_override,
    get_global_option,
    is_default_override,
    set_global_option,
)
from .device import (
    DeviceDescriptor,
    DeviceKind,
    all_devices,
    cpu,
    get_gpu_properties,
    gpu,
    set_excluded_devices,
    try_set_default_device,
    use_default_device,
)
from .eval import Evaluator, Predictor, evaluator
from .formats import onnx as _onnx  # registers the format
from .formats.containers import to_dictionary_value as _to_cntk_dict_value
from .graph.axis import Axis
from .graph.shape import FREE as FreeDimension
from .graph.shape import INFERRED as InferredDimension
from .initializer import *
from .interop import load_weights, save_weights
from .io import INFINITELY_REPEAT
from .learners import *
from .losses import *
from .metrics import *
from .ops import *
from .ops import sequence
from .parallel import workers as _workers
from .sample_installer import install_samples
from .train import *
from .variables import Constant, Parameter, Variable

__version__ = "2.7"
C = sys.modules[__name__]
cntk_library_path = os.path.dirname(__file__)  # where CNTK has its shared libraries
attach()
_workers.start()
