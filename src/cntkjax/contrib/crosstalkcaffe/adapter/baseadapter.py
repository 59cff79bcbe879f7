"""The base class of readers of networks."""

from __future__ import annotations

from ..unimodel.cntkmodel import CntkModelDescription
from ..utils.globalconf import GlobalConf


class Adapter:
    """A reader of networks."""

    def load_model(self, global_conf: GlobalConf) -> CntkModelDescription:
        """The network that a configuration names. Errors: depend on the file format."""
        raise NotImplementedError
