"""Reader blocks as minibatch sources."""

from __future__ import annotations

from .files import UtteranceSource
from .opening import Source, description_of, open_reader, pieces_of, sentences, streams_of

__all__ = ["Source", "UtteranceSource", "description_of", "open_reader", "pieces_of", "sentences", "streams_of"]
