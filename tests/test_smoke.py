"""`make smoke` runs at least one test of every folder of tests."""

from pathlib import Path

TESTS = Path(__file__).parent
ELSEWHERE = {"gpu"}  # make test-gpu


def test_the_list_names_every_folder_and_only_files_that_exist():
    names = [Path(line.partition("::")[0]) for line in (TESTS / "smoke.txt").read_text().splitlines()]
    assert all((TESTS.parent / name).exists() for name in names)
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/test_*.py")}
    assert folders - {name.parts[1] for name in names} == ELSEWHERE
