"""Networks of Caffe as CNTK models: ``convert.CaffeConverter.from_model`` reads one and saves the other.

What is made computes what Caffe computes, also where CNTK's converter does not (padding, axes, slopes, coefficients).
"""
