"""Networks of Caffe as CNTK models: ``CaffeConverter.from_model`` reads one and saves the other.

The models compute the same as Caffe, even where those of CNTK's converter do not (padding, axes, slopes, coefficients).
"""

from .convert import CaffeConverter

__all__ = ["CaffeConverter"]
