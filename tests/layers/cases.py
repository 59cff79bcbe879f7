"""Layers with options, and their operands. Plain Python 3.6, so that CNTK 2.7's interpreter can import it."""
import numpy as np

# The operand of a layer: shape of a sample, and lengths of sequences or None.
VECTOR, IMAGE, SIGNAL, CLIP = ((5,), None), ((2, 6, 6), None), ((2, 7), None), ((1, 4, 5, 5), None)
STEPS, ROWS = ((5,), (4, 2, 6)), ((2, 6), (5, 4))

CASES = {
    "L.Dense(3, C.tanh)": VECTOR,
    "L.Dense((2, 3), init_bias=0.3)": IMAGE,
    "L.Dense(3, map_rank=1, activation=C.sigmoid)": IMAGE,
    "L.Dense(3, input_rank=1, bias=False)": IMAGE,
    "L.Embedding(3)": VECTOR,
    "L.Activation(C.elu)": VECTOR,
    "L.LayerNormalization(initial_scale=2, initial_bias=0.5, epsilon=0.1)": IMAGE,
    "L.Stabilizer(steepness=3)": VECTOR,
    "L.Convolution2D(3, 4, pad=True, activation=C.tanh)": IMAGE,
    "L.Convolution2D((3, 2), 4, strides=(2, 1), init_bias=0.2)": IMAGE,
    "L.Convolution2D((2, 3), pad=(True, False))": IMAGE,
    "L.Convolution1D(3, 4, strides=2, pad=True)": SIGNAL,
    "L.Convolution3D((2, 3, 3), 3, strides=(1, 2, 2))": CLIP,
    "L.Convolution1D(3, 2, reduction_rank=0)": VECTOR,
    "L.Convolution((3, 3), 3, sequential=True, pad=True)": ROWS,
    "L.Convolution((2, 3), 3, sequential=True)": ROWS,
    "L.SequentialConvolution((3, 2), 3, pad=True, bias=False)": ROWS,
    "L.ConvolutionTranspose2D(3, 3, strides=2, pad=True)": IMAGE,
    "L.ConvolutionTranspose2D(4, 3, strides=2)": IMAGE,
    "L.ConvolutionTranspose1D(3, 2, C.tanh)": SIGNAL,
    "L.MaxPooling((2, 2), strides=2)": IMAGE,
    "L.MaxPooling((3, 3), strides=2, pad=True)": IMAGE,
    "L.AveragePooling((3, 3), strides=2, pad=True)": IMAGE,
    "L.GlobalAveragePooling()": IMAGE,
    "L.GlobalMaxPooling()": IMAGE,
    "L.Delay(2, initial_state=0.5)": STEPS,
    "L.Recurrence(L.LSTM(3))": STEPS,
    "L.Recurrence(L.LSTM(3, cell_shape=4, use_peepholes=True, enable_self_stabilization=True))": STEPS,
    "L.Recurrence(L.LSTM(3, activation=C.relu), go_backwards=True, initial_state=0.1)": STEPS,
    "L.Recurrence(L.GRU(3), initial_state=0.2)": STEPS,
    "L.Recurrence(L.GRU(3, cell_shape=3, enable_self_stabilization=True), go_backwards=True)": STEPS,
    "L.Recurrence(L.RNNStep(3, activation=C.tanh))": STEPS,
    "L.Fold(L.GRU(3))": STEPS,
    "L.Sequential([(L.Recurrence(L.GRU(3)), L.Recurrence(L.LSTM(3), go_backwards=True)), C.splice, L.Dense(2)])": STEPS,
    "L.Sequential([L.ResNetBlock(L.Dense(5, C.relu)), L.SequentialClique([L.Dense(5), L.Dense(2)])])": VECTOR,
}


def numbers(C, call):
    """The outputs of a layer with fixed weights, then the gradients of their squares for all parameters."""
    shape, lengths = CASES[call]
    random = np.random.RandomState(3)
    x = C.input_variable(shape) if lengths is None else C.sequence.input_variable(shape)
    f = eval(call, {"C": C, "L": C.layers})(x)
    for p in f.parameters:
        start = p.value if p.shape == () else 0
        p.value = np.asarray(start + 0.4 * random.standard_normal(p.shape), np.float32)
    if lengths is None:
        data = random.standard_normal((3, *shape)).astype(np.float32)
    else:
        data = [random.standard_normal((n, *shape)).astype(np.float32) for n in lengths]
    outputs = f.eval({x: data})
    gradients = C.square(f).grad({x: data}, wrt=list(f.parameters)) if f.parameters else []
    if len(f.parameters) == 1:
        gradients = {f.parameters[0]: gradients}
    return [np.concatenate([np.ravel(m) for m in outputs])] + [np.ravel(gradients[p]) for p in f.parameters]


def digest(values):
    """Four numbers that identify an array."""
    values = np.asarray(values, np.float64)
    waves = np.cos(np.arange(len(values)))
    return [len(values), values.sum(), np.square(values).sum(), values.dot(waves)]


if __name__ == "__main__":       # with CNTK 2.7, in the root of the repository: python -m tests.layers.cases
    import json
    import os

    import cntk

    lines = ["%s: %s" % (json.dumps(call), json.dumps([digest(v) for v in numbers(cntk, call)])) for call in CASES]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "numbers.json"), "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
