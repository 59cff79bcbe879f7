"""Thousands of damaged files, loaded one after another in this process with limits on its memory and time.

    python tests/formats/fuzz.py model 10000 --seed 1 FILE...

prints a line of JSON: how many loaded, how many were refused, and each that took too long or ended in another error.
These are kept in tests/stress/corpus, which `--replay` reads again:

    python tests/formats/fuzz.py model 0 --replay tests/stress/corpus/model-*
"""

import argparse
import gc
import hashlib
import json
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path

SECONDS, BYTES = 2, 2**30  # of the processor and of memory, for each file
CORPUS = Path(__file__).resolve().parents[1] / "stress" / "corpus"
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The file with one to four kinds of damage."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) or 1)
        match rng.randrange(8):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 1] = bytes([(out[at] if out else 0) ^ 1 << rng.randrange(8)])
            case 2:
                del out[at : at + rng.choice((1, 2, 8, 64, len(out)))]
            case 3:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 8, 100)))
            case 4:
                width = rng.choice("BHIQ")
                value = rng.choice(INTERESTING) % 256 ** struct.calcsize(width)
                out[at : at + struct.calcsize(width)] = struct.pack("<" + width, value)
            case 5:
                size = rng.randrange(1, 200)
                to = rng.randrange(len(out) or 1)
                out[to : to + rng.choice((0, size))] = out[at : at + size]
            case 6:
                other = rng.choice(others)
                start = rng.randrange(len(other))
                out[at : at + rng.randrange(200)] = other[start : start + rng.randrange(200)]
            case 7:
                names = [i for i in range(max(0, at - 400), min(len(out) - 1, at + 400)) if chr(out[i]).isdigit()]
                if names:  # uids end in numbers: another reference, often to an existing object
                    out[rng.choice(names)] = rng.choice(b"0123456789")
    return bytes(out)


def rewritten(data: bytes, rng: random.Random) -> bytes:
    """A whole file with other values in one to four places, for the readers of records, shapes and graphs."""
    from cntkjax.formats.dictionary import SizeT, StoredShape, decode, encode

    content = decode(data)
    places = list(_places(content))
    for _ in range(rng.randint(1, 4)):
        holder, key = rng.choice(places)
        if key not in (holder if isinstance(holder, dict) else range(len(holder))):
            continue
        other_holder, other_key = rng.choice(places)
        try:
            other = other_holder[other_key]
        except (KeyError, IndexError):
            other = None
        value = holder[key]
        if rng.random() < 0.2:
            del holder[key]
        elif isinstance(value, StoredShape):
            holder[key] = StoredShape(rng.choice((d, -1, -3, 0, 1, d + 1, 2**31, 2**40)) for d in value)
        elif isinstance(value, int) and not isinstance(value, bool):
            holder[key] = rng.choice((SizeT(rng.choice(INTERESTING)), SizeT(rng.randrange(100)), -value, other))
        elif isinstance(value, list) and value:
            holder[key] = rng.choice((value[::-1], value[1:], value + value, []))
        else:
            holder[key] = other
    try:
        return encode(content)
    except (ValueError, TypeError):  # it contains itself now, or a number that the format cannot hold
        return data


def _places(content):
    for key, value in list(content.items() if isinstance(content, dict) else enumerate(content)):
        yield content, key
        if isinstance(value, dict) or type(value) is list:
            yield from _places(value)


def loader(kind: str, folder: Path):
    """The function that reads files of that kind from bytes; a checkpoint with the model beside its file."""
    if kind == "checkpoint":
        from cntkjax.formats import checkpoint

        def load_checkpoint(data: bytes, path: Path) -> object:
            shutil.copyfile(path.with_suffix(""), folder / "m")
            (folder / "m.ckp").write_bytes(data)
            return checkpoint.load(folder / "m")

        return load_checkpoint
    if kind in ("ctf", "cbf"):
        return lambda data, _: read_all(kind, folder, data)
    from cntkjax.formats.model import load

    return lambda data, _: load(data)


def read_all(kind: str, folder: Path, data: bytes) -> None:
    """Read a file of text or binary format to its end."""
    from cntkjax import io

    path = folder / f"data.{kind}"
    path.write_bytes(data)
    streams = io.StreamDefs(x=io.StreamDef("x", shape=2), y=io.StreamDef("y", shape=3, is_sparse=True))
    reader = io.CTFDeserializer(str(path), streams) if kind == "ctf" else io.CBFDeserializer(str(path))
    source = io.MinibatchSource(reader, randomize=False, max_sweeps=1)
    while source.next_minibatch(1000):
        pass


def complaint(load, kind: str, data: bytes, path: Path) -> str | None:
    """Read a damaged file: None if that succeeds, "" if it is refused as it should be, otherwise what is wrong."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        load(data, path)
        return None
    except (ValueError, RuntimeError) as error:
        is_explained = str(error) and (kind in ("ctf", "cbf") or type(error).__name__ == "FormatError")
        return "" if is_explained else f"{type(error).__name__}: {error}"[:300]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def keep(kind: str, data: bytes, path: Path) -> None:
    """Store a file that was read wrongly in the corpus, a checkpoint with its model."""
    name = f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}"
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / (name + (".ckp" if kind == "checkpoint" else ""))).write_bytes(data)
    if kind == "checkpoint":
        shutil.copyfile(path.with_suffix(""), CORPUS / name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("model", "checkpoint", "ctf", "cbf"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", action="store_true", help="read the files as they are")
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    load = loader(options.kind, Path(folder.name))
    files = [path.read_bytes() for path in options.files]
    for data, path in zip(files, options.files, strict=True):
        with suppress(Exception):
            load(data, path)  # everything that loading needs is imported by now
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES,) * 2)
    report: dict = {"loaded": 0, "refused": 0, "slowest": 0.0, "bad": []}
    for i in range(len(files) if options.replay else options.count):
        rng = random.Random(f"{options.seed}/{i}")
        which = i if options.replay else rng.randrange(len(files))
        data = files[which] if options.replay else damaged(options.kind, files, which, i, rng)
        began = time.perf_counter()
        problem = complaint(load, options.kind, data, options.files[which])
        report["loaded" if problem is None else "refused"] += 1
        if problem:
            report["bad"].append([i, options.files[which].name, problem])
            keep(options.kind, data, options.files[which])
        report["slowest"] = max(report["slowest"], time.perf_counter() - began)
        if i % 200 == 0:
            gc.collect()
    print(json.dumps(report))


def damaged(kind: str, files: list[bytes], which: int, i: int, rng: random.Random) -> bytes:
    """A file with damage of its bytes or, every second model, of the values in it."""
    has_values = kind in ("model", "checkpoint") and files[which][:2] != b"B\0"
    return rewritten(files[which], rng) if i % 2 and has_values else mutated(files[which], files, rng)


def too_slow(*_: object) -> None:
    raise TimeoutError(f"took more than {SECONDS} s")


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, too_slow)
    main()
