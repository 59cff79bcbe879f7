"""``python -m cntkjax.cli``: the same as the command ``cntkjax``."""

import sys

from . import main

sys.exit(main())
