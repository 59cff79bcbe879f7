"""Metrics, in CNTK's names and signatures."""

from ..graph.arguments import check_arguments as _check_arguments
from ._metrics import classification_error, edit_distance_error, ndcg_at_1

_check_arguments(globals(), __name__, operands=True)
