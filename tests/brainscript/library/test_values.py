"""Values and gradients of the library's functions, recorded from the same operations of CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from tests.brainscript.language.descriptions import build

MATRICES = {
    "x": [[-1.3, 0.4], [0.7, 2.6]], "y": [[0.5, 1.1], [-0.6, 0.2]], "p": [[0.3, 0.8], [0.6, 0.2]],
    "f": [[1, 0], [0, 1]], "g": [[1, 1], [0, 0]], "v": [0.5, -1.2, 2.0], "u": [1.5, 0.3, -0.4], "l": [0, 0, 1],
}
SEQUENCES = {"s": [[1, -2], [0.5, 3], [2, 1]], "t": [[3, 4], [-1, 2]], "m": [[1], [0], [1]]}
RECORDED = [  # an expression, its value, and the gradient of its elements times 1, 2, 3, ... by one of its operands
    ("Abs (x)", [1.3, 0.4, 0.7, 2.6], "x", [-1, 2, 3, 4]),
    ("Ceil (x)", [-1, 1, 1, 3], "x", [0, 0, 0, 0]),
    ("Cosine (x)", [0.267499, 0.921061, 0.764842, -0.856889], "x", [0.963558, -0.778837, -1.93265, -2.06201]),
    ("Sin (x)", [-0.963558, 0.389418, 0.644218, 0.515501], "x", [0.267499, 1.84212, 2.29453, -3.42755]),
    ("Tanh (x)", [-0.861723, 0.379949, 0.604368, 0.989027], "x", [0.257433, 1.71128, 1.90422, 0.0872993]),
    ("Sigmoid (x)", [0.214165, 0.598688, 0.668188, 0.930862], "x", [0.168298, 0.480522, 0.665139, 0.257433]),
    ("Clip (x, -0.5, 0.6)", [-0.5, 0.4, 0.6, 0.6], "x", [0, 2, 0, 0]),
    ("Exp (x)", [0.272532, 1.49182, 2.01375, 13.4637], "x", [0.272532, 2.98365, 6.04126, 53.8549]),
    ("Floor (x)", [-2, 0, 0, 2], "x", [0, 0, 0, 0]),
    ("Round (x)", [-1, 0, 1, 3], "x", [0, 0, 0, 0]),
    ("Log (p)", [-1.20397, -0.223144, -0.510826, -1.60944], "p", [3.33333, 2.5, 5, 20]),
    ("Sqrt (p)", [0.547723, 0.894427, 0.774597, 0.447214], "p", [0.912871, 1.11803, 1.93649, 4.47214]),
    ("Reciprocal (p)", [3.33333, 1.25, 1.66667, 5], "p", [-11.1111, -3.125, -8.33333, -100]),
    ("-x", [1.3, -0.4, -0.7, -2.6], "x", [-1, -2, -3, -4]),
    ("!f", [0, 1, 1, 0], "f", [-1, -2, -3, -4]),
    ("ReLU (x)", [0, 0.4, 0.7, 2.6], "x", [0, 2, 3, 4]),
    ("ELU (x)", [-0.727468, 0.4, 0.7, 2.6], "x", [0.272532, 2, 3, 4]),
    ("Softplus (x)", [0.241008, 0.913015, 1.10319, 2.67164], "x", [0.214165, 1.19738, 2.00456, 3.72345]),
    ("Softsign (x)", [-0.565217, 0.285714, 0.411765, 0.722222], "x", [0.189036, 1.02041, 1.03806, 0.308642]),
    ("Hardmax (v)", [0, 0, 1], "v", [0, 0, 0]),
    ("Softmax (x, axis=2)", [0.119203, 0.0997505, 0.880797, 0.90025], "x", [-0.209987, -0.179601, 0.209987, 0.179601]),
    ("LogSoftmax (v)", [-1.7342, -3.4342, -0.234196], "v", [-0.0592524, 1.80649, -1.74724]),
    ("LogPlus (x, y)", [0.652978, 1.50319, 0.941008, 2.68684], "x", [0.141851, 0.663624, 2.35751, 3.66731]),
    ("x - y", [-1.8, -0.7, 1.3, 2.4], "x", [1, 2, 3, 4]),
    ("x .* y", [-0.65, 0.44, -0.42, 0.52], "x", [0.5, 2.2, -1.8, 0.8]),
    ("x / p", [-4.33333, 0.5, 1.16667, 13], "x", [3.33333, 2.5, 5, 20]),
    ("2 / p", [6.66667, 2.5, 3.33333, 10], "p", [-22.2222, -6.25, -16.6667, -200]),
    ("x / 4", [-0.325, 0.1, 0.175, 0.65], "x", [0.25, 0.5, 0.75, 1]),
    ("0.5 * x + 1", [0.35, 1.2, 1.35, 2.3], "x", [0.5, 1, 1.5, 2]),
    ("Less (x, y)", [1, 1, 0, 0], "x", [0, 0, 0, 0]),
    ("x >= y", [0, 0, 1, 1], "x", [0, 0, 0, 0]),
    ("NotEqual (f, g)", [0, 1, 0, 1], "f", [0, 0, 0, 0]),
    ("BS.Boolean.And (f, g)", [1, 0, 0, 0], "f", [1, 2, 0, 0]),
    ("BS.Boolean.Or (f, g)", [1, 1, 0, 1], "f", [0, 0, 0, 0]),
    ("BS.Boolean.Xor (f, g)", [0, 1, 0, 1], "f", [0, -4, 0, 8]),
    ("BS.Boolean.If (f, x, y)", [-1.3, 1.1, -0.6, 2.6], "x", [1, 0, 0, 4]),
    ("Max (x, y)", [0.5, 1.1, 0.7, 2.6], "x", [0, 0, 3, 4]),
    ("Min (x, Constant (0.5))", [-1.3, 0.4, 0.5, 0.5], "x", [1, 2, 0, 0]),
    ("Sqr (x)", [1.69, 0.16, 0.49, 6.76], "x", [-2.6, 1.6, 4.2, 20.8]),
    ("Times (x, y)", [0.12, 3.06, 0.92, 0.28], "x", [-1.3, -1.4, 1.7, 3]),
    ("TransposeTimes (x, y)", [-0.21, 3.21, 0.86, 0.1], "x", [-1.3, 1.7, -1.4, 3]),
    ("TransposeTimes (v, u)", [-0.41], "v", [1.5, 0.3, -0.4]),
    ("KhatriRaoProduct (v, u)", [0.75, -1.8, 3, 0.15, -0.36, 0.6, -0.2, 0.48, -0.8], "v", [-0.0999999, 1.3, 2.7]),
    ("ReduceLogSum (x)", [2.84734], "x", [0.0158064, 0.0865235, 0.116794, 0.780876]),
    ("ReduceMin (x, axis=1)", [-1.3, 0.7], "x", [1, 0, 2, 0]),
    ("ReduceProd (x, axis=2)", [-0.91, 1.04], "x", [0.7, 5.2, -1.3, 0.8]),
    ("ArgMax (x, axis=2)", [1, 1], "x", [0, 0, 0, 0]),
    ("CosDistance (v, u)", [-0.108707], "v", [0.407261, 0.0566158, -0.0678458]),
    ("MatrixL1Reg (x)", [5], "x", [-1, 1, 1, 1]),
    ("CrossEntropy (l, Softmax (v))", [0.234196], "v", [0.176542, 0.0322513, -0.208793]),
    ("ClassificationError (l, v, topN=2)", [0], "", []),
    ("CNTK2.Reshape (x, 4)", [-1.3, 0.4, 0.7, 2.6], "x", [1, 2, 3, 4]),
    ("FlattenDimensions (x, 1, 2)", [-1.3, 0.4, 0.7, 2.6], "x", [1, 2, 3, 4]),
    ("SplitDimension (x, 1, 2)", [-1.3, 0.4, 0.7, 2.6], "x", [1, 2, 3, 4]),
    ("Slice (-2, 0, v)", [-1.2, 2], "v", [0, 1, 2]),
    ("RowSlice (1, 2, v)", [-1.2, 2], "v", [0, 1, 2]),
    ("Splice (x : y, axis=2)", [-1.3, 0.4, 0.7, 2.6, 0.5, 1.1, -0.6, 0.2], "x", [1, 2, 3, 4]),
    ("RowStack (v : u)", [0.5, -1.2, 2, 1.5, 0.3, -0.4], "v", [1, 2, 3]),
    ("RowRepeat (v, 2)", [0.5, -1.2, 2, 0.5, -1.2, 2], "v", [5, 7, 9]),
    ("Transpose (x)", [-1.3, 0.7, 0.4, 2.6], "x", [1, 3, 2, 4]),
    ("PerDimMeanVarNormalization (x, Constant (0.5), Constant (2))", [-3.6, -0.2, 0.4, 4.2], "x", [2, 4, 6, 8]),
    ("PerDimMeanVarDeNormalization (x, Constant (0.5), Constant (2))", [-0.15, 0.7, 0.85, 1.8], "x", [0.5, 1, 1.5, 2]),
    ("Stabilize (v)", [0.5, -1.2, 2], "v", [1, 2, 3]),
    ("LayerNormalizationLayer {initialScale=2, initialBias=1} (v)", [1.102, -1.49889, 3.3969],
     "v", [-1.55978, 0.731146, 0.828632]),
    ("BS.Constants.OnesLike (x) + y", [1.5, 2.1, 0.4, 1.2], "x", [0, 0, 0, 0]),
    ("PastValue (2, s, timeStep=2)", [0.1, 0.1, 0.1, 0.1, 1, -2], "s", [1, 2]),
    ("BS.Loop.Next (s, defaultHiddenActivation=7)", [0.5, 3, 2, 1, 7, 7], "s", [2, 4]),
    ("DelayLayer {T=-2} (s)", [2, 1, 0, 0, 0, 0], "s", [1, 2]),
    ("BS.Sequences.First (s)", [1, -2], "s", [1, 2]),
    ("Slice (-2, -1, s, axis=-1)", [0.5, 3], "s", [1, 2]),
    ("Slice (1, 0, s, axis=-1)", [0.5, 3, 2, 1], "s", [2, 4]),
    ("BS.Sequences.Gather (m, s)", [1, -2, 2, 1], "s", [2, 4]),
    ("BS.Sequences.Scatter (m, t)", [3, 4, 0, 0, -1, 2], "t", [2, 4]),
    ("BS.Sequences.IsLast (s) .* s", [0, 0, 0, 0, 2, 1], "s", [1, 2]),
    ("BS.Sequences.BroadcastSequenceAs (s, BS.Sequences.Last (t)) + s", [0, 0, -0.5, 5, 1, 3], "s", [3, 6]),
    ("BS.Loop.PreviousOrDefault (s) + s", [1, -2, 1.5, 1, 2.5, 4], "s", [5, 10]),
    ("BS.Boolean.Toggle (m) .* s", [1, -2, 0.5, 3, 0, 0], "s", [2, 4]),
    ("BS.Boolean.Toggle (m, initialValue=BS.Constants.True) .* s", [0, 0, 0, 0, 2, 1], "s", [1, 2]),
    ("BS.Loop.Count (s) .* s", [1, -2, 1, 6, 6, 3], "s", [6, 12]),
]


@pytest.mark.parametrize(("expression", "value", "operand", "gradient"), RECORDED, ids=[row[0] for row in RECORDED])
def test_functions_have_the_values_and_gradients_of_cntk(expression, value, operand, gradient):
    has_steps = operand in SEQUENCES
    given = {name: np.array(values, np.float32) for name, values in (SEQUENCES if has_steps else MATRICES).items()}
    shapes = {name: values.shape[has_steps:] for name, values in given.items()}
    dimensions = {name: " : ".join(map(str, reversed(shape))) for name, shape in shapes.items()}
    network = build("\n".join([f"out = {expression}", "outputNodes = (out)", "axis = DynamicAxis{}"] + [
        f"{name}0 = Input {{({size}){', dynamicAxis=axis' * (name == 't')}}} ; {name} = {name}0 + "
        f"ParameterTensor {{({size}), initValue=0}}" for name, size in dimensions.items()
    ]))
    out = network.nodes[network.roles["output"][0]]
    data = {network.nodes[f"{name}0"]: [values] if has_steps else values[None] for name, values in given.items()}
    f = C.combine([out])
    np.testing.assert_allclose(np.ravel(f.eval({v: data[v] for v in f.arguments})), value, rtol=1e-5, atol=1e-6)
    if gradient:
        weights = C.constant(np.arange(1, 1 + np.prod(out.shape), dtype=np.float32).reshape(out.shape))
        loss = C.reduce_sum(C.element_times(out, weights), axis=C.Axis.all_axes())
        parameter = network.nodes[f"{operand}.PlusArgs[1]"]
        found = loss.grad({v: data[v] for v in loss.arguments}, wrt=[parameter])
        np.testing.assert_allclose(np.ravel(found), gradient, rtol=2e-5, atol=2e-6)
