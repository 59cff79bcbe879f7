"""`make smoke` runs at least one test of every folder of tests."""

from pathlib import Path

TESTS = Path(__file__).parent
ELSEWHERE = {"gpu"}  # make test-gpu


def test_the_list_names_every_folder_and_only_files_and_tests_that_exist():
    lines = (TESTS / "smoke.txt").read_text().splitlines()
    names = [Path(line.partition("::")[0]) for line in lines]
    assert all((TESTS.parent / name).exists() for name in names)
    for line in lines:
        file, _, test = line.partition("::")
        assert not test or f"def {test.partition('[')[0]}(" in (TESTS.parent / file).read_text(), line
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/test_*.py")}
    assert folders - {name.parts[1] for name in names} == ELSEWHERE
