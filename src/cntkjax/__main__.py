"""``python -m cntkjax``: the same as the command ``cntkjax``."""

import sys

from .cli import main

sys.exit(main())
