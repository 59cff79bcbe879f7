"""Reader blocks as minibatch sources."""

from __future__ import annotations

from .files import FileSource, UtteranceSource
from .opening import Source, label_maps, open_reader, pieces_of, sentences, streams_of
from .speech import lattice_files

__all__ = [
    "FileSource", "Source", "UtteranceSource", "label_maps", "lattice_files", "open_reader", "pieces_of", "sentences",
    "streams_of",
]  # fmt: skip
