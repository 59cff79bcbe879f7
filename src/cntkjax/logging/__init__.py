"""Reports progress on the screen, in log files and in TensorBoard, and inspects graphs."""

from ..viewer import view
from . import graph
from ._progress_writer import ProgressWriter
from ._summary import summary
from ._trace_level import TraceLevel, get_trace_level, set_trace_level
from ._training_plot import plot_training
from .graph import depth_first_search, find_all_with_name, find_by_name, find_by_uid, get_node_outputs, plot
from .progress_print import (
    ProgressBar,
    ProgressPrinter,
    TensorBoardProgressWriter,
    TrainingSummaryProgressCallback,
    log_number_of_parameters,
)

__all__ = ["ProgressBar", "ProgressPrinter", "ProgressWriter", "TensorBoardProgressWriter", "TraceLevel",
           "TrainingSummaryProgressCallback", "depth_first_search", "find_all_with_name", "find_by_name", "find_by_uid",
           "get_node_outputs", "get_trace_level", "graph", "log_number_of_parameters", "plot", "plot_training",
           "set_trace_level", "summary", "view"]

