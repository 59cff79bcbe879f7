"""Names in NDL, in lower case, and what they are called in the library."""

from __future__ import annotations

from ..language.networks import SPECIAL as _SPECIAL
from ..network import ROLES

SPECIAL = {name.lower(): role for name, role in _SPECIAL.items()}
FUNCTIONS = {
    "inputvalue": "Input", "sparseinputvalue": "SparseInput", "learnableparameter": "Parameter", "const": "Constant",
    "errorprediction": "ClassificationError", "cewithsm": "CrossEntropyWithSoftmax", "l1reg": "MatrixL1Reg",
    "l2reg": "MatrixL2Reg", "perdimmvnorm": "PerDimMeanVarNormalization", "convolve": "Convolution",
    "se": "SquareError", "delay": "PastValue", "cosdist": "CosDistance", "sum": "Plus", "cos": "Cosine",
    "columnwisecrossproduct": "KhatriRaoProduct", "reconcilemblayout": "ReconcileDynamicAxis", "prior": "Mean",
    "cbcewithsm": "ClassBasedCrossEntropyWithSoftmax", "rectlinear": "RectifiedLinear", "image": "ImageInput",
    "perdimmvdenorm": "PerDimMeanVarDeNormalization", "coswithnegsamples": "CosDistanceWithNegativeSamples",
}  # other names of functions
OPTIONS = {
    "defaulthiddenactivity": "defaultHiddenActivation", "delaytime": "timeStep", "zeropadding": "zeroPadding",
    "mapcount": "mapDims", "lowerpadding": "lowerPad", "upperpadding": "upperPad", "default": "defaultHiddenActivation",
    "kernelshape": "kernelDims", "defaultpastvalue": "defaultHiddenActivation", "needsgradient": "needGradient",
}
VALUES = {"none": "zero"} | {name.lower(): name for name in (
    "uniform", "gaussian", "fixedValue", "fromFile", "fromLiteral", "heNormal", "heUniform", "glorotNormal",
    "glorotUniform", "xavier", "zero", "bilinear", *ROLES, "criteria", "eval",
)}

__all__ = ["FUNCTIONS", "OPTIONS", "SPECIAL", "VALUES"]
