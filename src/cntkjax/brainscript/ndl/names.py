"""Names in NDL, in lower case, and what they are called in the library."""

from __future__ import annotations

from ..network import ROLES

SPECIAL = {
    "featurenodes": "feature", "labelnodes": "label", "criterionnodes": "criterion", "criterianodes": "criterion",
    "evalnodes": "evaluation", "evaluationnodes": "evaluation", "outputnodes": "output",
}
FUNCTIONS = {
    "inputvalue": "Input", "sparseinputvalue": "SparseInput", "learnableparameter": "Parameter", "const": "Constant",
    "errorprediction": "ClassificationError", "cewithsm": "CrossEntropyWithSoftmax", "l1reg": "MatrixL1Reg",
    "l2reg": "MatrixL2Reg", "perdimmvnorm": "PerDimMeanVarNormalization", "convolve": "Convolution",
    "se": "SquareError",
    "delay": "PastValue", "cosdist": "CosDistance", "columnwisecrossproduct": "KhatriRaoProduct", "sum": "Plus",
    "reconcilemblayout": "ReconcileDynamicAxis", "cos": "Cosine",
    "cbcewithsm": "ClassBasedCrossEntropyWithSoftmax", "rectlinear": "RectifiedLinear", "prior": "Mean",
    "perdimmvdenorm": "PerDimMeanVarDeNormalization",
}  # other names of functions
OPTIONS = {
    "defaulthiddenactivity": "defaultHiddenActivation", "delaytime": "timeStep", "zeropadding": "zeroPadding",
    "mapcount": "mapDims", "lowerpadding": "lowerPad", "upperpadding": "upperPad", "default": "defaultHiddenActivation",
}
VALUES = {name.lower(): name for name in (
    "uniform", "gaussian", "fixedValue", "fromFile", "fromLiteral", "heNormal", "heUniform", "glorotNormal",
    "glorotUniform", "xavier", "zero", "bilinear", *ROLES, "criteria", "eval",
)}

__all__ = ["FUNCTIONS", "OPTIONS", "SPECIAL", "VALUES"]
