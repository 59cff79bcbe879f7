"""Microsoft's tests of speech on features made here: what their logs say of minibatches, samples, rates and momenta.

The features of these tests are not in the public tree, but the lengths of the utterances and their labels are. So all
that a log says is compared but the values of criteria. Networks are made smaller, which changes nothing of this.
Nothing of the public tree is in this repository; it is read as ``run_public`` describes:

    python -m tests.brainscript.run_speech                   # all tests below
    python -m tests.brainscript.run_speech Truncated         # those whose names contain this

Lattices are not public either, and which utterances have none is not known: trainings with lattices made here are
compared with each other.
"""

from __future__ import annotations

import difflib
import re
import shutil
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..primitives.test_lattice import lattice, unit
from .run_public import PUBLIC, run

_TESTS = PUBLIC / "Tests/EndToEndTests"
_DATA = _TESTS / "Speech/Data"
_WIDTH = 33  # numbers of a frame
_KEPT = re.compile(
    r"Starting Epoch|Starting minibatch|Finished Epoch|-Minibatch\[|Initializing dataP|Parallel training|Final Results"
    r"|Precomputing"
)
_VALUE = re.compile(r"( = )(?:-?[\d.]+(?:e[+-]\d+)?|-?nan|inf)(%?) \*")
_NOISE = re.compile(r"^MPI Rank 0: |^\[0\] |^\d\d/\d\d/\d{4} [\d:]+: |; (?:time|epochTime)\s*=.*|; perplexity = [\d.]+")
_KEPT_SIZES = re.compile("inibatch|blockSize")  # all others are those of layers
_SIZES = re.compile(r"\b(?:2048|1024|512|256)\b(?=[:,) \t]|$)", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A test: its folder, its configuration, further arguments, and the number of workers."""

    test: str
    config: str
    arguments: tuple[str, ...] = ()
    workers: int = 1


_WHOLE = ("truncated=false", "speechTrain=[reader=[nbruttsineachrecurrentiter=2]]",
          "speechTrain=[SGD=[epochSize=2560;maxEpochs=2;numMBsToShowResult=1]]")
_NEW = "speechTrain=[reader=[readerType=HTKDeserializers]]"
CASES = (
    Case("Speech/QuickE2E", "Speech/QuickE2E/cntk.cntk", ("makeMode=true",)),
    Case("Speech/LSTM/FullUtterance", "Speech/LSTM/cntk.cntk",
         (*_WHOLE, "speechTrain=[SGD=[momentumAsTimeConstant=0:189.8]]", "modelSelector=0")),
    Case("Speech/LSTM/FullUtteranceLayers", "Speech/LSTM/cntk.cntk", (*_WHOLE, "modelSelector=1")),
    Case("Speech/LSTM/Truncated", "Speech/LSTM/cntk.cntk",
         ("speechTrain=[SGD=[momentumAsTimeConstant=0:6074.9]]", "modelSelector=0")),
    Case("Speech/LSTM/TruncatedLayers", "Speech/LSTM/cntk.cntk", ("modelSelector=1",)),
    Case("Speech/HTKDeserializers/LSTM/FullUtterance", "Speech/HTKDeserializers/LSTM/FullUtterance/cntk.cntk",
         ("Truncated=false", "speechTrain=[SGD=[epochSize=2560;maxEpochs=2;numMBsToShowResult=1]]")),
    Case("Speech/SVD", "Speech/SVD/cntk.cntk"),
    Case("Speech/DNN/WriteCommand", "Speech/DNN/WriteCommand/cntk.cntk"),
    Case("Speech/DNN/ParallelNoQuantization", "Speech/DNN/cntk.cntk", workers=3),
    Case("Speech/DNN/Parallel1BitQuantization", "Speech/DNN/cntk.cntk", (
        "precision=double", "speechTrain=[SGD=[ParallelTrain=[DataParallelSGD=[gradientBits=1]]]]",
        "speechTrain=[SGD=[ParallelTrain=[parallelizationStartEpoch=2]]]"), workers=3),
    Case("Speech/DNN/Dropout", "Speech/DNN/Dropout/cntk.cntk", workers=2),
    Case("Speech/DNN/DiscriminativePreTraining", "Speech/DNN/DiscriminativePreTraining/cntk_dpt.cntk"),
    Case("Speech/DNN/SaveBestModelPerCriterion", "Speech/DNN/SaveBestModelPerCriterion/cntkcv.cntk",
         ("saveBestModelPerCriterion=true",), workers=2),
    Case("Examples/Speech/AN4/LSTM", "../../Examples/Speech/AN4/Config/LSTM-NDL_ndl_deprecated.cntk",
         ("speechTrain=[SGD=[maxEpochs=1;epochSize=64]]", "parallelTrain=false")),
    Case("Speech/LSTM_CTC", "Speech/LSTM_CTC/lstm.bs", ("makeMode=false",)),
    Case("Speech/LSTM_CTC_MLF", "Speech/LSTM_CTC_MLF/lstm.bs", ("makeMode=false",)),
    Case("Speech/LSTM/FullUtteranceCuDNN5", "Speech/LSTM/cntk.cntk", (*_WHOLE, "modelSelector=2")),
    Case("Speech/HTKDeserializers/QuickE2E", "Speech/QuickE2E/cntk.cntk", (_NEW,)),
    Case("Speech/HTKDeserializers/SVD", "Speech/SVD/cntk.cntk", ("reader=[readerType=HTKDeserializers]",)),
    Case("Speech/HTKDeserializers/LSTM/Truncated", "Speech/LSTM/cntk.cntk",
         (_NEW, "speechTrain=[SGD=[momentumAsTimeConstant=0:6074.9]]", "modelSelector=0")),
    Case("Speech/HTKDeserializers/DNN/WriteCommand", "Speech/DNN/WriteCommand/cntk.cntk",
         (_NEW, "write=[reader=[readerType=HTKDeserializers;readMethod=none]]")),
    Case("Speech/HTKDeserializers/DNN/DiscriminativePreTraining",
         "Speech/DNN/DiscriminativePreTraining/cntk_dpt.cntk", ("reader=[readerType=HTKDeserializers]",)),
    Case("Speech/HTKDeserializers/DNN/Dropout", "Speech/DNN/Dropout/cntk.cntk", (_NEW,), workers=2),
    Case("Speech/DNN/ParallelCrossValidation", "Speech/DNN/ParallelCrossValidation/cntkcv.cntk", workers=2),
)


def make_data(folder: Path) -> None:
    """The public data, and features whose number of frames is that of the script file."""
    shutil.copytree(_DATA, folder, dirs_exist_ok=True)
    script = (folder / "glob_0000.scp").read_text()
    file = folder / re.findall(r"=(.*?)\[", script)[0]
    frames = max(int(last) for last in re.findall(r",(\d+)\]", script)) + 1
    file.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(0).standard_normal((frames, _WIDTH)).astype(">f4")
    file.write_bytes(struct.pack(">iihh", frames, 100000, 4 * _WIDTH, 9) + values.tobytes())


def make_lattices(folder: Path) -> None:
    """Lattices of nearly all utterances in four archives: two halves, each with two hypotheses of a unit."""
    states = (folder / "state.list").read_text().split()
    units = [f"u{i}" for i in range(len(states) // 3)]
    (folder / "model.overalltying").write_text("".join(
        f"{unit} three {' '.join(states[3 * i : 3 * i + 3])}\n" for i, unit in enumerate(units)))
    (folder / "model.transprob").write_text("three 3 1 0 0 0 0.6 0.4 0 0 0 0.6 0.4 0 0 0 0.6 0.4\n")
    rng = np.random.default_rng(1)
    utterances = re.findall(r"^(.*?)\.mfc=.*\[(\d+),(\d+)\]", (folder / "glob_0000.scp").read_text(), re.MULTILINE)
    for k, name in enumerate(["CY2SCH010061231_1369712653", "b", "c", "d"]):  # the first is that of the configurations
        archive, table, content = folder / f"{name}.numden.lats", "", b""
        for utterance, first, last in utterances[k::4]:
            if rng.random() < 0.97:
                frames = int(last) + 1 - int(first)
                halves = [frames // 2, frames - frames // 2]
                chosen = rng.integers(0, len(units), (2, 2)).tolist()
                units_of_halves = [unit(u, n) for n, pair in zip(halves, chosen, strict=True) for u in pair]
                words = [word for each in units_of_halves for word in (-0.5, each)]
                table += f"{utterance}={archive}[{len(content)}]\n"
                content += lattice([0, halves[0], frames], [(0, 1, 1), (0, 1, 3), (1, 2, 5), (1, 2, 7)], words)
        archive.write_bytes(content)
        Path(f"{archive}.toc").write_text(table)
        Path(f"{archive}.symlist").write_text("\n".join(units))
    (folder / "latticeIndex.txt").write_text("\n".join(map(str, sorted(folder.glob("*.toc")))))


def sequence_training(data: Path) -> list[str]:
    """How trainings with lattices differ: of the old reader, and of deserializers. In Microsoft's logs they do not."""
    minibatches = []
    for test in ("SequenceTraining", "SequenceTrainingNewReader"):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(f"Speech/DNN/{test}", f"Speech/DNN/{test}/cntk_sequence.cntk", ("SGD=[maxEpochs=1]",))
            log = log_of(case, data, Path(folder)).split("equenceTrain command")[-1]
        found = re.findall(r"\[ *\d+- *\d+, .*?%\]: c[er] = (\S+ \* \d+); err = (\S+ \* \d+)", log, re.IGNORECASE)
        minibatches.append([" ".join(numbers) for numbers in found] or [log[-1000:]])
    return list(difflib.unified_diff(*minibatches, "HTKMLFReader", "deserializers", lineterm="", n=0))


def small_copy(config: Path, folder: Path) -> Path:
    """A copy of a configuration and its folder, with layers of 8."""
    shutil.copytree(config.parent, folder, dirs_exist_ok=True)
    for path in folder.rglob("*"):
        if path.suffix in (".cntk", ".bs", ".ndl", ".txt", ".mel") and not path.name.startswith("baseline"):
            lines = path.read_text(errors="replace").splitlines()
            path.write_text("\n".join(each if _KEPT_SIZES.search(each) else _SIZES.sub("8", each) for each in lines))
    return folder / config.name


def log_of(case: Case, data: Path, folder: Path) -> str:
    """What the command logs."""
    config = small_copy(_TESTS / case.config, folder / "config")
    log, status = run(config, data, folder, case.workers, case.arguments)
    return log if status == 0 else f"{log}\nFinished Epoch[ exit status {status} {log[-1000:]}"


def lines_of(log: str) -> list[str]:
    """The lines of the first run that are compared, without the values of criteria and times."""
    first_run = re.split(r"=== (?:Deleting|Re-running)", log)[0]
    found = []
    for line in first_run.splitlines():
        while line != (shorter := _NOISE.sub("", line)):
            line = shorter
        if _KEPT.search(line) and not line.startswith("MPI Rank"):
            line = re.sub(r", [\d.]+%\]", "]", line)  # CNTK rounded them as the platform's library did
            found.append(_VALUE.sub(r"\1value\2 *", line).replace("e-005", "e-05").rstrip())
    return found


def differences(case: Case, data: Path) -> list[str]:
    """The lines that are not those of Microsoft's log."""
    logs = sorted((_TESTS / case.test).glob("baseline*.txt"), key=lambda path: ("cpu" not in path.name, path.name))
    recorded = next(path for path in logs if "windows" not in path.name).read_text(errors="replace")
    with tempfile.TemporaryDirectory() as folder:
        found = log_of(case, data, Path(folder))
    return list(difflib.unified_diff(lines_of(recorded), lines_of(found), "recorded", case.test, lineterm="", n=0))


def main(arguments: list[str]) -> int:
    """Run the cases whose names contain an argument; returns the exit status."""
    if not _DATA.is_dir():
        print(f"skipped: there is no public tree in {PUBLIC}")
        return 0
    status = 0
    with tempfile.TemporaryDirectory() as data:
        make_data(Path(data))
        for case in CASES:
            if not arguments or any(part in case.test for part in arguments):
                problems = differences(case, Path(data))
                print(f"{case.test}: {'differs' if problems else 'as recorded'}", *problems, sep="\n", flush=True)
                status |= bool(problems)
        if not arguments or any(part in "Speech/DNN/SequenceTraining" for part in arguments):
            make_lattices(Path(data))
            problems = sequence_training(Path(data))
            title = f"Speech/DNN/SequenceTraining: both readers train {'otherwise' if problems else 'alike'}"
            print(title, *problems, sep="\n")
            status |= bool(problems)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
