"""Runs the command ``cntkjax`` as ``python -m cntkjax.cli``."""

import sys

from . import main

sys.exit(main())
