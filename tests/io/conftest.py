import numpy as np
import pytest

from cntkjax import _build_native
from cntkjax.engine.data.ragged import SparseRows
from cntkjax.io import CTFDeserializer, MinibatchSource, StreamDef, StreamDefs, _ctf_native


@pytest.fixture(scope="session")
def compiled_library(tmp_path_factory):
    """The parser of text files, compiled from the source here; None without a C compiler."""
    if _build_native.compiler() is None:
        return None
    library = tmp_path_factory.mktemp("native") / _build_native.CTF.path.name
    assert _build_native.build(_build_native.CTF, library) is None
    return library


@pytest.fixture
def compiled_parser(compiled_library, monkeypatch):
    """Text files are read with the compiled parser."""
    if compiled_library is None:
        pytest.skip("needs a C compiler")
    _use_library(monkeypatch, compiled_library)
    assert _ctf_native.is_available()


@pytest.fixture(params=["compiled", "NumPy"])
def parser(request, monkeypatch):
    """Text files are read with the compiled parser and with NumPy."""
    if request.param == "compiled":
        request.getfixturevalue("compiled_parser")
    else:
        _use_library(monkeypatch, None)
        assert not _ctf_native.is_available()


def _use_library(monkeypatch, library):
    loaded = _ctf_native._load(library) if library else None
    monkeypatch.setattr(_ctf_native, "_library", lambda: loaded)


def _plain(ragged) -> list:
    if not isinstance(ragged.data, SparseRows):
        return [sequence.tolist() for sequence in ragged.sequences()]
    ends = [(rows, zip(rows.indptr[:-1], rows.indptr[1:], strict=True)) for rows in ragged.sequences()]
    return [[dict(zip(r.indices[a:b].tolist(), r.values[a:b].tolist(), strict=True)) for a, b in at] for r, at in ends]


@pytest.fixture
def plain():
    """The sequences of a minibatch as lists; a step of a sparse one is a dict {index: value}."""
    return _plain


@pytest.fixture
def ctf(tmp_path):
    """Create a deserializer from a text: ``ctf(text, x=2, w=(5,))`` has a dense stream x and a sparse one w."""
    count = iter(range(1000))

    def make(text: str | bytes, options=(), defining: str = "", **streams):
        path = tmp_path / f"data{next(count)}.ctf"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        definitions = {
            name: StreamDef(
                name, *(shape, True) if isinstance(shape, tuple) else (shape,), defines_mb_size=name == defining
            )
            for name, shape in streams.items()
        }
        definitions = {
            name: d.updated_with(dim=d.dim[0]) if isinstance(d.dim, tuple) else d for name, d in definitions.items()
        }
        return CTFDeserializer(str(path), StreamDefs(**definitions)) | dict(options)

    return make


@pytest.fixture
def read_all():
    """All minibatches of a source up to its end, as dicts name -> sequences."""

    def read(source: MinibatchSource, size: int = 100, limit: int = 1000, **partition) -> list:
        minibatches = []
        while len(minibatches) < limit:
            minibatch = source.next_minibatch(size, **partition)
            if not minibatch:
                break
            minibatches.append({info.name: _plain(data.ragged) for info, data in minibatch.items()})
        return minibatches

    return read


@pytest.fixture
def forty(ctf):
    """Forty sequences of 1 to 5 steps: x is (sequence, step); one sample of y is the sequence's number."""
    lengths = np.random.default_rng(0).integers(1, 6, 40)
    rows = [
        f"{i} |x {i} {step}" + (f" |y {i}" if step == 0 else "")
        for i, length in enumerate(lengths)
        for step in range(length)
    ]
    text = "\n".join(rows) + "\n"
    return lambda chunk=2**20, **more: ctf(text, {"chunkSizeInBytes": chunk}, x=2, y=1, **more)
