"""What scripts import from ``cntk.tests``; the tests of this package are elsewhere."""
