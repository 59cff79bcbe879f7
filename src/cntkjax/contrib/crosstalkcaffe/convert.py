"""The converter: a configuration names the network, its weights, and the model to be written."""

from __future__ import annotations

import os

from ..._user_code import warn
from ...graph.errors import explain
from ...ops.functions import Function
from .adapter.bvlccaffe.caffeadapter import CaffeAdapter
from .unimodel.cntkinstance import CntkApiInstance
from .utils.globalconf import load_conf


class CaffeConverter:
    """Networks of Caffe as CNTK models."""

    @staticmethod
    def from_model(conf_path: str | os.PathLike[str]) -> Function:
        """Convert the network that a configuration names, save the model, and return it.

        Args:
            conf_path: a JSON file with ``SourceSolver`` (``Source``: Caffe, ``ModelPath``: a prototxt, ``WeightsPath``:
                a caffemodel; ``Tensor``: shapes of inputs by name, for data layers, which have none) and
                ``ModelSolver`` (``CNTKModelPath``: the path of the model; by default it is not saved)

        Errors: ValueError for an invalid configuration or an unsupported layer, FormatError for a damaged file, each
                with the position; OSError for files that cannot be read.
        """
        conf = load_conf(conf_path)
        if conf.source_solver.source != "Caffe":
            raise ValueError(explain(
                f"{conf_path}: Source is {conf.source_solver.source!r}; only 'Caffe' is converted",
                fix="set Source of SourceSolver to 'Caffe'",
            ))
        if conf.valid_solver.save_path is not None:
            warn("ValidSolver is ignored: a comparison with Caffe needs Caffe")
        instance = CntkApiInstance(CaffeAdapter().load_model(conf), conf)
        if conf.model_solver.cntk_model_path is not None:
            instance.export_model()
        return instance.get_model()
