"""Progress of training and testing: on the screen, in log files, in TensorBoard."""
from ._progress_writer import ProgressWriter
from ._trace_level import TraceLevel, get_trace_level, set_trace_level
from .progress_print import (
    ProgressPrinter,
    TensorBoardProgressWriter,
    TrainingSummaryProgressCallback,
    log_number_of_parameters,
)

__all__ = ["ProgressPrinter", "ProgressWriter", "TensorBoardProgressWriter", "TraceLevel",
           "TrainingSummaryProgressCallback", "get_trace_level", "log_number_of_parameters", "set_trace_level"]
