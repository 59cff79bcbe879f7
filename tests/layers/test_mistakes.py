"""Errors name the layer, its operand, what it expects, and how to fix the mistake."""

import re

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from cntkjax.graph.errors import AxisError, ShapeError

S = C.sequence
x, image = C.input_variable(5, name="x"), C.input_variable((3, 8, 8), name="image")
steps = S.input_variable(5, name="s")
state = C.input_variable(4, name="h0")
scalar = C.input_variable((), name="scalar")
free = C.input_variable(C.FreeDimension, name="free")
X, IMAGE, STEPS = r"Input('x', [#], [5])", r"Input('image', [#], [3 x 8 x 8])", r"Input('s', [#, *], [5])"

# The mistake, the error, and parts of its message in their order.
MISTAKES = {
    "dense, too few axes": (
        lambda: L.Dense(3, input_rank=3, name="fc")(x), ShapeError, [f"Dense 'fc' of {X}", "at least the 3 axes"]),
    "dense, all axes mapped": (
        lambda: L.Dense(3, map_rank=2, name="fc")(x), ShapeError,
        [f"Dense 'fc' of {X}", "2 axes of the left operand are mapped"]),
    "dense, free dimension": (
        lambda: L.Dense(3, name="fc")(free), ShapeError, ["Dense 'fc' of Input('free'", "'W'", "free dimension"]),
    "dense, other size than before": (
        lambda: [layer(v) for layer in [L.Dense(3, name="fc")] for v in (x, image)], ShapeError,
        [f"Dense 'fc' of {IMAGE}", "inner dimensions differ: 8 (left axis -1) against 5 (right axis 0)", "[3 x 8 x 8]",
         "[5 x 3]", "Fix: ", "one layer for each input size"]),
    "dense, negative size": (lambda: L.Dense(-3), ValueError, ["Dense: the shape is", "not -3"]),
    "dense, not evaluated yet": (lambda: L.Dense(3).W.value, ValueError, ["'W'", "inferred when it is first used"]),
    "dense, activation": (lambda: L.Dense(3, activation="relu")(x), TypeError, ["a function is needed", "'relu'"]),
    "embedding, other vocabulary": (
        lambda: L.Embedding(weights=np.ones((4, 3)), name="emb")(x), ShapeError,
        [f"Embedding 'emb' of {X}", "[4 x 3]"]),
    "convolution, an image whose channels come last": (
        lambda: L.Convolution2D(5, 8)(C.input_variable((28, 28, 1))), ShapeError,
        ["5 against 1 along axis 2", "the 1 are the channels of an image", "[channels x height x width]"]),
    "convolution, rank": (
        lambda: L.Convolution2D(3, 4, name="conv")(x), ShapeError, [f"Convolution 'conv' of {X}", "kernel is 4"]),
    "convolution, window": (
        lambda: L.Convolution2D(9, 4, name="conv")(image), ShapeError,
        [f"Convolution 'conv' of {IMAGE}", "9 against 8 along axis 1"]),
    "transposed convolution, rank": (
        lambda: L.ConvolutionTranspose2D(3, 4, name="up")(x), ShapeError, [f"ConvolutionTranspose 'up' of {X}"]),
    "convolution along the sequence": (
        lambda: L.SequentialConvolution(3, 4, name="conv")(x), AxisError,
        [f"Convolution 'conv' of {X}", "no sequence axis", "sequence.input_variable"]),
    "pooling, rank": (
        lambda: L.MaxPooling((2, 2), name="pool")(x), ShapeError, [f"MaxPooling 'pool' of {X}", "window has 2 axes"]),
    "unpooling": (
        lambda: L.MaxUnpooling((2, 2), name="un")(x, image), ShapeError, [f"MaxUnpooling 'un' of {X}, {IMAGE}"]),
    "normalization, free dimension": (
        lambda: L.LayerNormalization(name="ln")(free), ShapeError, ["LayerNormalization 'ln' of Input('free'"]),
    "normalization, channels of a scalar": (
        lambda: L.BatchNormalization(map_rank=1, name="bn")(scalar), ShapeError,
        ["BatchNormalization 'bn' of Input('scalar', [#], [])", "no channels"]),
    "inside other layers": (
        lambda: L.Sequential([L.Dense(2, name="first"), L.Convolution2D(3, 4, name="second")])(x), ShapeError,
        ["Convolution 'second'", "kernel is 4, but that of the operand 1"]),
    "unknown option": (lambda: L.LSTM(3, peepholes=True), TypeError, ["LSTM()", "'peepholes'"]),
    "unknown option of a convolution": (
        lambda: L.Convolution2D(3, 4, stride=2), TypeError, ["Convolution2D()", "'stride'", "pad, strides, bias"]),
    "item of a Sequential": (
        lambda: L.Sequential([L.Dense(3), 5], name="net"), TypeError, ["Sequential 'net'", "item 1", "5"]),
    "layer function that was not called": (
        lambda: L.Sequential([L.Dense])(x), TypeError, ["Dense: the shape is a number", "Fix: ", "Dense(10)(x)"]),
    "layer made of its input": (
        lambda: L.LSTM(steps), TypeError, ["LSTM: the shape is a number", STEPS, "LSTM(10)(x)"]),
    "shape as text": (lambda: L.Embedding("300"), ValueError, ["Embedding: the shape is a number", "'300'"]),
    "size 0 of a layer": (
        lambda: L.Dense((2, 0)), ValueError, ["Dense: the shape is", "not (2, 0)   test_mistakes.py:"]),
    "size 0 of a cell": (lambda: L.GRU(0), ValueError, ["GRU: the shape is", "not 0"]),
    "state of size 0": (lambda: L.LSTM(3, cell_shape=0), ValueError, ["LSTM: the cell_shape is", "not 0"]),
    "window of size 0": (
        lambda: L.MaxPooling(0), ValueError, ["MaxPooling: the filter_shape is", "not 0   test_mistakes.py:"]),
    "window of size 0 along one axis": (
        lambda: L.AveragePooling((2, 0)), ValueError, ["AveragePooling: the filter_shape is", "not (2, 0)"]),
    "strides of 0": (lambda: L.MaxPooling(2, strides=0), ValueError, ["MaxPooling: the strides is", "not 0"]),
    "kernel of size 0": (
        lambda: L.Convolution2D((3, 0), 2), ValueError, ["Convolution2D: the filter_shape is", "not (3, 0)   test_"]),
    "kernel of size 0 of a transposed convolution": (
        lambda: L.ConvolutionTranspose((3, 0), 2), ValueError, ["ConvolutionTranspose: the filter_shape"]),
    "kernel of size 0 along the sequence": (
        lambda: L.SequentialConvolution(0, 2), ValueError, ["SequentialConvolution: the filter_shape is", "not 0"]),
    "no filters": (lambda: L.Convolution(3, 0), ValueError, ["Convolution: the num_filters is", "not 0"]),
    "dilation of 0": (lambda: L.Convolution2D(3, 2, dilation=0), ValueError, ["the dilation is", "not 0"]),
    "no groups": (lambda: L.Convolution2D(3, 2, groups=0), ValueError, ["Convolution2D: groups = 0"]),
    "attention of size 0": (lambda: L.AttentionModel(0), ValueError, ["AttentionModel: attention_dim = 0"]),
    "activation of a cell": (
        lambda: L.GRU(3, activation="tanh"), TypeError, ["GRU: activation: a function is needed", "'tanh'", "Fix: "]),
    "strides of another length": (
        lambda: L.MaxPooling((2, 2), strides=(1, 2, 3)), ValueError,
        ["MaxPooling: strides", "one for each of the 2 axes", "(1, 2, 3)"]),
    "padding as text": (
        lambda: L.Convolution2D((3, 3), 4, pad="same"), TypeError, ["Convolution: pad is the text 'same'", "Fix: "]),
    "initializer as text": (
        lambda: L.Dense(3, init="glorot_uniform"), ValueError, ["init is the text", "Fix: ", "cntk.glorot_uniform()"]),
    "number instead of a range": (lambda: L.For(3, lambda: L.Dense(2)), TypeError, ["For: ", "Fix: pass range(3)"]),
    "clique without layers": (lambda: L.SequentialClique([]), ValueError, ["SequentialClique: there are no layers"]),
    "shortcut around a layer that changes the shape": (
        lambda: L.ResNetBlock(L.Dense(3))(x), ShapeError, ["ResNetBlock: the shapes (3,) and (5,)", "Fix: "]),
    "clique with a layer that changes the shape": (
        lambda: L.SequentialClique([L.Dense(3), L.Dense(3)])(x), ShapeError,
        ["SequentialClique: the shapes (5,) and (3,)", "Fix: "]),
    "step function that cannot be called": (
        lambda: L.Recurrence(3), TypeError, ["Recurrence: the step function is 3", "LSTM(300)"]),
    "step function without a state": (
        lambda: L.Recurrence(L.Dense(3))(steps), TypeError, ["takes 0 and returns 1", "LSTM(10), not Dense(10)"]),
    "generator that cannot be called": (lambda: L.UnfoldFrom(3), TypeError, ["UnfoldFrom: the generator is 3"]),
    "number of steps": (lambda: L.Delay("2"), TypeError, ["Delay: ", "must be an integer, not '2'"]),
    "recurrence without a sequence": (
        lambda: L.Recurrence(L.LSTM(3), name="rec")(x), AxisError,
        [f"recurrence 'rec' of {X}", "no sequence axis", "sequence.input_variable"]),
    "recurrence without a sequence, inside other layers": (
        lambda: L.Sequential([L.Dense(2), L.Recurrence(L.LSTM(3), name="rec")])(x), AxisError,
        ["recurrence 'rec': PastValue", "no sequence axis"]),
    "recurrence of all states, without a name": (
        lambda: L.Recurrence(L.LSTM(3), return_full_state=True)(x), AxisError,
        [f"recurrence of {X}: PastValue", "no sequence axis"]),
    "recurrences side by side": (
        lambda: L.Sequential([(L.Recurrence(L.GRU(3)), L.Recurrence(L.GRU(3), name="back")), C.splice])(scalar),
        ShapeError, ["recurrence: GRU", "Input('scalar', [#], [])"]),
    "cell of another size than its output": (
        lambda: L.Recurrence(L.GRU(3, cell_shape=4))(steps), ShapeError, [f"recurrence of {STEPS}: GRU", "[3 x 4]"]),
    "data for a layer without inputs": (
        lambda: L.Dense(3, name="fc")(np.ones((2, 5))), ValueError,
        ["Dense 'fc'", "takes variables and no data", "x = ndarray", "input_variable"]),
    "data for layers without inputs": (
        lambda: L.Sequential([L.Dense(3)], name="net")(None), ValueError, ["'net'", "NoneType"]),
    "fold without a sequence": (
        lambda: L.Fold(L.GRU(3), name="sum")(x), AxisError, [f"fold 'sum' of {X}", "no sequence axis"]),
    "delay without a sequence": (
        lambda: L.Delay(name="before")(x), AxisError, [f"Delay 'before' of {X}", "no sequence axis"]),
    "window without a sequence": (
        lambda: L.PastValueWindow(3, axis=-2, name="w")(x), AxisError,
        [f"PastValueWindow 'w' of {X}", "no sequence axis"]),
    "unfolding without a sequence": (
        lambda: L.UnfoldFrom(lambda h: h + 1, name="u")(state, x), AxisError,
        [f"unfold_from 'u' of Input('h0', [#], [4]), {X}", "no sequence axis"]),
    "attention without a sequence": (
        lambda: L.AttentionModel(4, name="a")(x, steps), AxisError,
        [f"attention_model 'a' of {X}, {STEPS}", "no sequence axis"]),
    "number of initial states": (
        lambda: L.Recurrence(L.LSTM(3), initial_state=(0, 0, 0), name="rec"), TypeError,
        ["Recurrence 'rec'", "3 states", "takes 2: (dh, dc)"]),
    "size of an initial state": (
        lambda: L.Recurrence(L.GRU(3), initial_state=np.ones(4, np.float32), name="rec")(steps), AxisError,
        [f"recurrence 'rec' of {STEPS}", "initial state does not broadcast", "[3]", "[4]"]),
    "size of an initial state from data": (
        lambda: L.RecurrenceFrom(L.GRU(3), name="rec")(state, steps), AxisError,
        [f"recurrence_from 'rec' of Input('h0', [#], [4]), {STEPS}", "initial state does not broadcast"]),
    "initial states left out": (
        lambda: L.RecurrenceFrom(L.LSTM(3), name="rec")(state, steps), TypeError,
        ["recurrence_from 'rec'", "expected 3 arguments, got 2", "it takes (h, c, x)"]),
    "two numbers for one input": (
        lambda: L.Dense(2)(3, 4), TypeError,
        ["Dense: CNTK Function expected 1 arguments, got 2", "it takes (x)", "Fix: pass one value for 'x'"]),
    "an argument of another name": (
        lambda: L.Dense(2, name="fc")(y=x), TypeError,
        ["Dense 'fc'", "unexpected keyword argument 'y'", "it takes (x)"]),
    "two inputs of different width": (
        lambda: [layer(C.input_variable(n)) for layer in [L.Dense(2, name="fc")] for n in (40, 44)], ShapeError,
        ["Dense 'fc' of Input(", "44 (left axis -1) against 40 (right axis 0)", "Fix: pass an operand", "size is 40"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_error_names_the_layer_and_its_operand(name):
    make, error, texts = MISTAKES[name]
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, texts))):
        make()


def test_a_layer_can_be_used_again_after_an_error():
    layer = L.Dense(3)
    with pytest.raises(ShapeError):
        layer(free)
    assert layer(x).shape == (3,)
