"""Functions of users, which record what they are called with."""

import cntkjax as C
from cntkjax.ops.functions import UserFunction


class Scaled(UserFunction):
    """scale · a + b of arrays or lists; records its arguments."""

    def __init__(self, *inputs, name="scaled", scale=2.0, as_numpy=True):
        super().__init__(inputs, as_numpy=as_numpy, name=name)
        self.scale, self.seen, self.states, self.retained = scale, [], [], []

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        self.seen.append(arguments)
        self.retained.append(list(outputs_to_retain))
        a, b = arguments if len(self.inputs) > 1 else (arguments, None)
        return len(self.seen), each(lambda x: self.scale * x + (0 if b is None else b), a)

    def backward(self, state, root_gradients, variables=None):
        self.states.append(state)
        if variables is None:
            return each(lambda g: g * self.scale, root_gradients)
        for v in variables:
            variables[v] = each(lambda g, v=v: g * (self.scale if v == self.inputs[0] else 1), root_gradients)
        return None

    def serialize(self):
        return {"scale": self.scale}

    @staticmethod
    def deserialize(inputs, name, state):
        return Scaled(*inputs, name=name, scale=state["scale"])


def each(f, data):
    return [f(d) for d in data] if isinstance(data, list) else f(data)


class Split(UserFunction):
    """x + 1 and 10 x."""

    def __init__(self, x, name="split"):
        super().__init__([x], name=name)

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes, name=n) for n in ("more", "ten")]

    def forward(self, argument, outputs, device=None, outputs_to_retain=None):
        more, ten = self.outputs
        outputs[more], outputs[ten] = argument + 1, argument * 10
        return "kept"

    def backward(self, state, root_gradients):
        more, ten = self.outputs
        return root_gradients[more] + 10 * root_gradients[ten]
