"""Attaches everything that CNTK's compiled module adds to the public classes and modules."""

from __future__ import annotations

from .earlier_versions import explain_names
from .function_members import add_function_members
from .reexports import show
from .value_members import add_value_members


def attach() -> None:
    """Called once, at the end of the package's import."""
    add_function_members()
    add_value_members()
    show()
    explain_names()
