"""Recurrent loops of all forms that CNTK saves; `C` is CNTK or this package. Parameters and inputs have names."""
import numpy as np

LENGTHS = {"x": (4, 2, 3), "z": (2, 3, 1)}
VALUES = {"init": 2, "y": 3}
FORMS = {}


def form(f):
    FORMS[f.__name__] = f
    return f


def steps(C, name="x", **options):
    return C.sequence.input_variable(2, name=name, needs_gradient=True, **options)


def per_sequence(C, name):
    return C.input_variable(VALUES[name], name=name, needs_gradient=True)


def weights(C, *shape):
    values = np.random.RandomState(sum(shape)).uniform(-0.5, 0.5, shape).astype(np.float32)
    return C.parameter(init=values, name="w" + "x".join(map(str, shape)))


def closed(C, f, *initial, **options):
    """h = f(the delayed h), all delays by different initial states."""
    p = C.placeholder()
    h = f(*[C.sequence.past_value(p, state, **options) for state in initial or [None]])
    return h.replace_placeholders({p: h})


def crossed(C, number, step):
    """`number` loops, each of which delays the next one: step(i, the placeholder of the next)."""
    ps = [C.placeholder() for _ in range(number)]
    hs = [step(i, ps[(i + 1) % number]) for i in range(number)]
    both = C.combine([h.output for h in hs])
    return both.replace_placeholders({p: hs[i].output for i, p in enumerate(ps)}).outputs


@form
def two_that_feed_each_other(C):
    x, init, first = steps(C), per_sequence(C, "init"), weights(C, 2)

    def step(i, other):
        if i:
            return C.sigmoid(x - C.sequence.past_value(other, init))
        return C.tanh(x + 0.5 * C.sequence.past_value(other, first, 2))

    a, b = crossed(C, 2, step)
    return C.sequence.reduce_sum(C.sequence.future_value(a) + b)


@form
def four_that_feed_each_other(C):
    x, init = steps(C), per_sequence(C, "init")
    states = init, 0.1, init, None
    return C.splice(*crossed(C, 4, lambda i, p: C.tanh(x + 0.3 * C.sequence.past_value(p, states[i], 1 + i % 2))))


@form
def two_that_look_ahead(C):
    x, init = steps(C), per_sequence(C, "init")
    a, b = crossed(C, 2, lambda i, p: C.tanh((i - 0.5) * x + C.sequence.future_value(p, init, 2 - i)))
    return C.sequence.first(a * b)


@form
def computed_initial_state(C):
    x, y = steps(C), per_sequence(C, "y")
    return closed(C, lambda h: C.tanh(h + x), C.times(y, weights(C, 3, 2)))


@form
def last_step_as_initial_state(C):
    x = steps(C)
    forward = closed(C, lambda h: C.tanh(0.5 * h + x), C.sequence.last(x))
    return closed(C, lambda h: C.sigmoid(h + 0.5 * forward), C.sequence.last(forward))


@form
def initial_state_along_another_axis(C):
    x, z = steps(C), steps(C, "z", sequence_axis=C.Axis("decoder"))
    return closed(C, lambda h: C.tanh(C.times(h, weights(C, 2, 2)) + z), C.sequence.last(x))


@form
def several_initial_states(C):
    x, init = steps(C), per_sequence(C, "init")
    return closed(C, lambda g, h, k: C.tanh(x + 0.4 * g - 0.3 * h + k * h), init, weights(C, 2), 0.5, time_step=2)


@form
def selected_steps(C):
    x = steps(C)
    chosen = C.sequence.gather(x, C.greater(x[:1], 0))
    return C.sequence.reduce_sum(closed(C, lambda h: C.tanh(0.5 * h + chosen), per_sequence(C, "init")))


@form
def steps_of_arrays(C):
    x = C.to_sequence(C.input_variable((C.FreeDimension, 2), name="array", needs_gradient=True))
    return C.sequence.last(closed(C, lambda h: C.tanh(0.5 * h + x), per_sequence(C, "init"), time_step=2))


@form
def layer_with_an_initial_state(C):
    return C.layers.RecurrenceFrom(C.layers.RNNStep(3, init=0.1))(per_sequence(C, "y"), steps(C))


@form
def generator(C):
    w = weights(C, 2, 2)
    return C.layers.UnfoldFrom(lambda h: C.tanh(C.times(h, w) + 0.1))(per_sequence(C, "init"), steps(C))


@form
def both_directions(C):
    x, init, p = steps(C), per_sequence(C, "init"), C.placeholder()
    ahead = C.tanh(x + C.sequence.future_value(p, init) * 0.5)
    ahead = ahead.replace_placeholders({p: ahead})
    return C.splice(closed(C, lambda h: C.sigmoid(h - ahead), init, time_step=3), ahead)


def results(C, f):
    """The value of a function, and the gradients by parameters and inputs, by name."""
    random = np.random.RandomState(5)

    def data(v):
        if v.name in LENGTHS:
            return [random.uniform(-1, 1, (n, 2)).astype(np.float32) for n in LENGTHS[v.name]]
        return random.uniform(-1, 1, (3, 4, 2) if v.name == "array" else (3, *v.shape)).astype(np.float32)

    feed = {v: data(v) for v in sorted(f.arguments, key=lambda v: v.name)}
    wrt = sorted((v for v in f.inputs if not v.is_constant), key=lambda v: v.name)
    gradients = f.grad(feed, wrt)
    gradients = gradients if isinstance(gradients, dict) else {wrt[0]: gradients}
    named = {v.name: gradients[v] for v in wrt}
    named["value"] = f.eval(feed)
    return {k: [np.asarray(a).tolist() for a in v] for k, v in named.items()}
