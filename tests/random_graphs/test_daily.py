"""Programs that nobody has seen before, other ones each day; `make random-graphs LONGER=n` runs n times as many."""

import datetime
import os

import pytest

from . import exchange, media_programs, onnx_files, reader_programs
from .consistency import problems
from .generator import write
from .processes import ORACLE
from .shrink import differences

LONGER = int(os.environ.get("CNTKJAX_RANDOM_GRAPHS", "1"))
TODAY = datetime.datetime.now(datetime.UTC).date().toordinal() * 100_000


@pytest.mark.timeout(0 if LONGER > 1 else 300)
def test_programs_of_today_compute_the_same_in_other_forms():
    seeds = range(TODAY, TODAY + 12 * LONGER)
    print(f"seeds {seeds}")
    for seed in seeds:
        program, _ = write(seed)
        if program.roots:
            assert not problems(program), f"seed {seed}:\n{program.script()}"


@pytest.fixture
def seeds():
    """Those of the programs that are compared with CNTK."""
    if not ORACLE.exists() or "CNTKJAX_RANDOM_GRAPHS" not in os.environ:
        pytest.skip("`make random-graphs` compares with the original CNTK 2.7 in ../shared/oracle")
    print(f"seeds {(seeds := range(TODAY, TODAY + 12 * LONGER))}")
    return seeds


@pytest.mark.timeout(0 if LONGER > 1 else 300)
def test_programs_of_today_agree_with_cntk(seeds):
    readers = reader_programs.write, media_programs.images, media_programs.speech
    programs = [p for p in (write(seed)[0] for seed in seeds) if p.roots] + [r(seed) for r in readers for seed in seeds]
    for program, found in zip(programs, differences(programs), strict=True):
        assert not [d for d in found if d.is_fault], f"seed {program.seed}: {found}\n{program.script()}"


@pytest.mark.parametrize("kind", exchange.KINDS)
@pytest.mark.timeout(0 if LONGER > 1 else 300)
def test_files_of_today_are_read_by_the_other(seeds, kind):
    files = exchange.KINDS[kind]
    for program, found in exchange.problems(files, list(exchange.suitable(files, seeds))):
        assert not found, f"seed {program.seed}: {found}\n{program.script()}"


@pytest.mark.timeout(0 if LONGER > 1 else 300)
def test_onnx_files_of_today_compute_the_same(seeds):
    pytest.importorskip("onnxruntime")
    for program in filter(onnx_files.is_writable, (write(2 * seed)[0] for seed in seeds)):
        assert not (found := onnx_files.problem_of(program)), f"seed {program.seed}: {found}\n{program.script()}"
