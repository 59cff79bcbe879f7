"""The two user functions of the models user_function and user_function_two."""
import numpy as np
from cntk.ops.functions import UserFunction

import cntk as C


class MyScaledPlus(UserFunction):
    """scale * a + b"""

    def __init__(self, a, b, scale=1.0, name='my_scaled_plus'):
        super().__init__([a, b], name=name)
        self.scale = scale

    def infer_outputs(self):
        i = self.inputs[0]
        return [C.output_variable(i.shape, i.dtype, i.dynamic_axes)]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        return None, self.scale * arguments[0] + arguments[1]

    def backward(self, state, root_gradients, variables):
        for v in variables:
            variables[v] = root_gradients * self.scale if v == self.inputs[0] else root_gradients

    def serialize(self):
        return {'scale': self.scale}

    @staticmethod
    def deserialize(inputs, name, state):
        return MyScaledPlus(inputs[0], inputs[1], state['scale'], name)


class MyRowNorm(UserFunction):
    """two outputs: x / |x| and |x|, row by row"""

    def __init__(self, x, name='my_row_norm'):
        super().__init__([x], name=name)

    def infer_outputs(self):
        i = self.inputs[0]
        return [C.output_variable(i.shape, i.dtype, i.dynamic_axes, name='unit'),
                C.output_variable((1,), i.dtype, i.dynamic_axes, name='length')]

    def forward(self, argument, outputs, device=None, outputs_to_retain=None):
        n = np.sqrt(np.sum(argument * argument, axis=-1, keepdims=True))
        for k in outputs:
            outputs[k] = argument / n if k == self.outputs[0] else n
        return None

    def backward(self, state, root_gradients, variables):
        raise NotImplementedError('no gradient')

    def serialize(self):
        return {}
