"""Imports jax before anything else does, and leaves the global random generators as they were.

A module of jax (0.10: ``jax._src.clusters.k8s_cluster``) draws from NumPy's global generator while it is imported.
Scripts that call ``np.random.seed`` before ``import cntk`` must draw the same numbers afterwards as with CNTK.
"""

from __future__ import annotations

import gc
import random

import numpy as np

from ._interrupts import deferred_interrupts, keep_ignored_interrupts

_states = random.getstate(), np.random.get_state()
with deferred_interrupts():  # an exception within the import of jaxlib's library ends in a segmentation fault
    import jax  # noqa: F401

random.setstate(_states[0])
np.random.set_state(_states[1])

# What jax is made of stays until the process ends; looking through it took four fifths of each full collection.
gc.freeze()

keep_ignored_interrupts()
