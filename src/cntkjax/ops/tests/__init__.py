"""What scripts import from ``cntk.ops.tests``; the tests of this package are elsewhere."""
