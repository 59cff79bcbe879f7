"""What readers of networks have in common."""

from __future__ import annotations

from ..unimodel.cntkmodel import CntkModelDescription
from ..utils.globalconf import GlobalConf


class Adapter:
    """A reader of networks."""

    def load_model(self, global_conf: GlobalConf) -> CntkModelDescription:
        """The network that a configuration names."""
        raise NotImplementedError
