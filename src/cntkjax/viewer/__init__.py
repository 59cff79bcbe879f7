"""Pages that show a model: its graph, blocks that fold, attributes and parameters, and how two models differ."""

from .differences import Differences, compare
from .page import View, page, view

__all__ = ["Differences", "View", "compare", "page", "view"]
