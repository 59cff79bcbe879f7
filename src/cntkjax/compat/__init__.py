"""Names of CNTK's compiled module, ``cntk.cntk_py``, and of its generated classes."""
