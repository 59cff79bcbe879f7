"""Reader blocks as minibatch sources."""

from __future__ import annotations

from .opening import open_reader, streams_of

__all__ = ["open_reader", "streams_of"]
