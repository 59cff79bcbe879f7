"""Reader blocks as minibatch sources."""

from __future__ import annotations

from .opening import Source, description_of, open_reader, pieces_of, streams_of

__all__ = ["Source", "description_of", "open_reader", "pieces_of", "streams_of"]
