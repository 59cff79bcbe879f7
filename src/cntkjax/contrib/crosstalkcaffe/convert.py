"""The converter: a configuration names the network, its weights, and the model that is to be written."""

from __future__ import annotations

import os
import warnings

from ...ops.functions import Function
from .adapter.bvlccaffe.caffeadapter import CaffeAdapter
from .unimodel.cntkinstance import CntkApiInstance
from .utils.globalconf import load_conf


class CaffeConverter:
    """Networks of Caffe as CNTK models."""

    @staticmethod
    def from_model(conf_path: str | os.PathLike[str]) -> Function:
        """Converts what a configuration says, saves the model, and returns it.

        Args:
            conf_path: a JSON file with ``SourceSolver`` (``Source``: Caffe, ``ModelPath``: a prototxt, ``WeightsPath``:
                a caffemodel; ``Tensor``: shapes of inputs by name, for data layers, which tell none) and
                ``ModelSolver`` (``CNTKModelPath``: where the model is written; without it, nowhere)

        Errors: ValueError for a configuration, and FormatError for files, that are damaged or that say what is not
                converted, with the place; OSError for files that cannot be read.
        """
        conf = load_conf(conf_path)
        if conf.source_solver.source != "Caffe":
            raise ValueError(f"{conf_path}: Source is {conf.source_solver.source!r}; only 'Caffe' is converted")
        if conf.valid_solver.save_path is not None:
            warnings.warn("ValidSolver is left alone: comparing with Caffe needs Caffe", stacklevel=2)
        instance = CntkApiInstance(CaffeAdapter().load_model(conf), conf)
        if conf.model_solver.cntk_model_path is not None:
            instance.export_model()
        return instance.get_model()
