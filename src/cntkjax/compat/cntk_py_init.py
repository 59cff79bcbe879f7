"""CNTK finds its shared libraries here; there are none to be found, and importing this does nothing."""
