"""Metrics, in CNTK's names and signatures."""

from ..ops._naming import name_errors as _name_errors
from ._metrics import classification_error, edit_distance_error, ndcg_at_1

_name_errors(globals(), f"{__name__}._")
