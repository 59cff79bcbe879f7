"""Every difference from CNTK that is known to the comparison is one that users can read about."""

from pathlib import Path

from .known import KNOWN

ROWS = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()


def test_known_differences_are_rows_of_the_documentation():
    assert not [k.row for k in KNOWN if f"\n| {k.row}" not in ROWS]
