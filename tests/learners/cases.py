"""Calls of all learners, and the gradients fed to them. Plain Python, so that CNTK 2.7's interpreter can import it too.

A new learner gets a row here. `CALLS` are compared with recordings of CNTK 2.7 (see record.py); a learner that CNTK
does not have goes to `REFERENCES`, with its rule in plain Python.
"""
import math

SIZES = [4, 2, 7, 1, 5, 3]
START = [[1.0, -0.5, 0.25], [0.0, 2.0, -1.5]]
SWEEP_ENDS = [1, 3]


def gradient(step):
    """Sums over SIZES[step] samples; one is zero everywhere, some elements are zero or change their sign."""
    if step == 2:
        return [[0.0] * 3, [0.0] * 3]
    wave = [[math.cos(3 * step + column + 2 * row) for column in range(3)] for row in range(2)]
    wave[1][2] = 0.0 if step < 2 else wave[1][2]
    return [[SIZES[step] * value for value in row] for row in wave]


def sgd_rule(g, w, state, n):
    """The rule of plain gradient descent, as an example of a reference."""
    return w - 0.1 * g / n, state


# call -> rule(g, w, state, n), which returns (new w, new state) for one element of a parameter: g is the sum of its
# gradients over n samples, and state is None before the first step.
REFERENCES = {
    "C.sgd(params, 0.1, minibatch_size=0)": sgd_rule,
}

RMSPROP = "gamma=0.9, inc=1.5, dec=0.5, max=0.05, min=0.001"
CALLS = [
    "C.sgd(params, 0.1)",
    "C.sgd(params, 0.1, minibatch_size=4)",
    "C.sgd(params, 0.1, minibatch_size=0)",
    "C.sgd(params, 0.1, use_mean_gradient=True, minibatch_size=4)",
    "C.sgd(params, C.learning_parameter_schedule_per_sample(0.03))",
    "C.sgd(params, C.learning_parameter_schedule_per_sample(0.03), use_mean_gradient=True)",
    "C.sgd(params, C.learning_parameter_schedule_per_sample(0.03), minibatch_size=0)",
    "C.sgd(params, C.learning_parameter_schedule(0.1, 8), minibatch_size=0)",
    "C.sgd(params, C.learning_parameter_schedule(0.1, 8), minibatch_size=4)",
    "C.sgd(params, C.learning_parameter_schedule(0.1), minibatch_size=4)",
    "C.sgd(params, C.learning_rate_schedule(0.1, C.UnitType.minibatch), minibatch_size=4)",
    "C.sgd(params, C.learning_rate_schedule([0.1, 0.2], C.UnitType.sample))",
    "C.sgd(params, [0.1, (2, 0.05), 0.2], epoch_size=5)",
    "C.sgd(params, [0.1, 0.0, 0.2], epoch_size=13)",
    "C.sgd(params, -0.1, l1_regularization_weight=0.1)",
    "C.sgd(params, 0.1, l1_regularization_weight=0.3, l2_regularization_weight=0.2)",
    "C.sgd(params, 0.1, l1_regularization_weight=0.3, l2_regularization_weight=0.2, minibatch_size=0)",
    "C.sgd(params, 0.1, l1_regularization_weight=-1, l2_regularization_weight=-1)",
    "C.sgd(params, 0.1, gradient_clipping_threshold_per_sample=0.4, l2_regularization_weight=0.2)",
    "C.sgd(params, 0.1, gradient_clipping_threshold_per_sample=0.4, minibatch_size=0)",
    "C.sgd(params, 0.1, gradient_clipping_threshold_per_sample=0.0)",
    "C.sgd(params, 0.1, gradient_clipping_threshold_per_sample=-1.0)",
    "C.sgd(params, 0.1, gradient_clipping_threshold_per_sample=0.4, gradient_clipping_with_truncation=False)",
    "C.momentum_sgd(params, 0.1, 0.9)",
    "C.momentum_sgd(params, 0.1, 0.9, unit_gain=False)",
    "C.momentum_sgd(params, 0.1, 0.9, minibatch_size=4)",
    "C.momentum_sgd(params, 0.1, C.momentum_schedule(0.9, minibatch_size=3), minibatch_size=0)",
    "C.momentum_sgd(params, 0.1, -0.5)",
    "C.momentum_sgd(params, [0.1, 0.2], [0.9, 0.5], epoch_size=6)",
    "C.momentum_sgd(params, 0.1, C.momentum_schedule_per_sample([0.9, 0.95, 0.5]))",
    "C.nesterov(params, 0.1, C.momentum_as_time_constant_schedule(20))",
    "C.nesterov(params, 0.1, 0.9, unit_gain=False)",
    "C.nesterov(params, 0.1, 0.0)",
    "C.adagrad(params, 0.1)",
    "C.adagrad(params, 0.1, need_ave_multiplier=False, minibatch_size=0)",
    "C.adadelta(params)",
    "C.adadelta(params, 0.5, rho=0.8, epsilon=1e-3)",
    f"C.rmsprop(params, 0.1, {RMSPROP})",
    f"C.rmsprop(params, 0.1, {RMSPROP}, need_ave_multiplier=False)",
    "C.fsadagrad(params, 0.1, 0.9)",
    "C.fsadagrad(params, 0.1, C.momentum_schedule([0.9, 0.0, 0.9], epoch_size=7), variance_momentum=0.9)",
    "C.fsadagrad(params, 0.1, 0.9, unit_gain=False, variance_momentum=C.momentum_schedule_per_sample(0.9))",
    "C.adam(params, 0.1, 0.9)",
    "C.adam(params, 0.1, 0.9, unit_gain=False, variance_momentum=0.9, epsilon=0.1)",
    "C.adam(params, [0.1, 0.0, 0.1], 0.9, variance_momentum=0.9, epoch_size=20)",
    "C.adam(params, 0.1, 0.9, variance_momentum=0.9, minibatch_size=4)",
    "C.adam(params, 0.1, C.momentum_schedule_per_sample(0.9), variance_momentum=0.9, adamax=True)",
]
