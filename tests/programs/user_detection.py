"""Programs of users who find things in pictures."""

import numpy as np
from cntk.layers import Convolution2D, Dense, MaxPooling, Sequential
from cntk.ops.functions import UserFunction

import cntk as C
from tests.programs.common import fix, losses, numbers, program


@program
def yolo_like_loss():
    """A grid of cells with anchors: centers by sigmoid, sizes by exp, and terms that masks switch on and off."""
    grid, anchors, classes = 3, 2, 3
    sizes = np.array([[1.0, 1.5], [2.0, 0.7]], np.float32)
    fields = 5 + classes
    x, y = C.input_variable((3, 12, 12)), C.input_variable((grid * grid * anchors, fields))
    net = Sequential([
        Convolution2D((3, 3), 4, activation=lambda v: C.leaky_relu(v, 0.1), pad=True), MaxPooling((2, 2), strides=2),
        Convolution2D((3, 3), 6, activation=lambda v: C.leaky_relu(v, 0.1), pad=True), MaxPooling((2, 2), strides=2),
        Convolution2D((1, 1), anchors * fields)])(x)
    cells = C.reshape(C.transpose(net, (1, 2, 0)), (grid * grid * anchors, fields))
    centers = C.sigmoid(C.slice(cells, 1, 0, 2))
    wide = C.exp(cells[:, 2:4]) * C.constant(np.tile(sizes, (grid * grid, 1)))
    there = C.sigmoid(cells[:, 4:5])
    chances = C.softmax(cells[:, 5:], axis=1)
    out = fix(C.splice(centers, wide, there, chances, axis=1), 0.2)
    of_object = y[:, 4:5]
    low, high = C.element_max(centers - wide / 2, y[:, 0:2] - y[:, 2:4] / 2), C.element_min(
        centers + wide / 2, y[:, 0:2] + y[:, 2:4] / 2)
    overlap = C.element_max(high - low, 0)
    shared = overlap[:, 0:1] * overlap[:, 1:2]
    area = C.reduce_prod(wide, axis=1) + C.reduce_prod(y[:, 2:4], axis=1) - shared
    quality = C.stop_gradient(shared / area)
    loss = 5 * C.reduce_sum(of_object * C.square(centers - y[:, 0:2]))
    loss += 5 * C.reduce_sum(of_object * C.square(C.sqrt(wide) - C.sqrt(y[:, 2:4] + 1e-6)))
    loss += C.reduce_sum(of_object * C.square(there - quality))
    loss += 0.5 * C.reduce_sum((1 - of_object) * C.element_select(C.greater(quality, 0.6), 0, C.square(there)))
    loss += C.reduce_sum(of_object * C.square(chances - y[:, 5:]))
    trainer = C.Trainer(out, (loss, C.reduce_mean(quality)), [C.momentum_sgd(
        out.parameters, C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9), l2_regularization_weight=0.01)])
    rng = np.random.RandomState(4)
    truth = np.zeros((5, grid * grid * anchors, fields), np.float32)
    for picture in truth:
        for cell in rng.choice(len(picture), 3, replace=False):
            picture[cell, :4], picture[cell, 4] = rng.uniform(0.3, 1.2, 4), 1
            picture[cell, 5 + rng.randint(classes)] = 1
    feed = {x: numbers(5, 3, 12, 12), y: truth}
    history = losses(trainer, [feed], 5)
    return {"loss": history, "quality": trainer.previous_minibatch_evaluation_average, "out": out.eval({x: feed[x]})}


class Proposals(UserFunction):
    """Scores and shifts of anchors become the best regions, relative to the picture."""

    def __init__(self, scores, shifts, anchors, count, name="Proposals"):
        super(Proposals, self).__init__([scores, shifts], name=name)
        self.anchors, self.count = anchors, count

    def infer_outputs(self):
        return [C.output_variable((self.count, 4), self.inputs[0].dtype, self.inputs[0].dynamic_axes, name="rois")]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        scores, shifts = arguments
        regions = self.anchors + np.asarray(shifts).reshape(len(scores), -1, 4)
        best = np.argsort(-np.asarray(scores), axis=1, kind="mergesort")[:, : self.count]
        chosen = np.stack([r[b] for r, b in zip(regions, best)])
        return None, np.clip(chosen, 0, 1).astype(np.float32)

    def backward(self, state, root_gradients, variables=None):
        return None, None

    def clone(self, cloned_inputs):
        return Proposals(cloned_inputs[0], cloned_inputs[1], self.anchors, self.count, self.name)

    def serialize(self):
        return {"anchors": self.anchors.ravel().tolist(), "count": self.count}


class Targets(UserFunction):
    """For each region its class, one-hot, and the shift to the true box, by the overlap with that."""

    def __init__(self, rois, truth, classes, name="Targets"):
        super(Targets, self).__init__([rois, truth], name=name)
        self.classes = classes

    def infer_outputs(self):
        axes, dtype, count = self.inputs[0].dynamic_axes, self.inputs[0].dtype, self.inputs[0].shape[0]
        return [
            C.output_variable((count, self.classes), dtype, axes, name="label_targets"),
            C.output_variable((count, 4), dtype, axes, name="box_targets"),
        ]

    def forward(self, arguments, outputs, device=None, outputs_to_retain=None):
        rois, truth = arguments
        overlap = np.minimum(rois[:, :, 2:], truth[:, None, 2:4]) - np.maximum(rois[:, :, :2], truth[:, None, :2])
        hit = (overlap > 0.05).all(axis=2)
        labels = np.where(hit, truth[:, None, 4], 0).astype(int)
        for output in outputs:
            if output.name == "label_targets":
                outputs[output] = np.eye(self.classes, dtype=np.float32)[labels]
            else:
                outputs[output] = np.where(hit[:, :, None], truth[:, None, :4] - rois, 0).astype(np.float32)

    def backward(self, state, root_gradients, variables):
        pass

    def clone(self, cloned_inputs):
        return Targets(cloned_inputs[0], cloned_inputs[1], self.classes, self.name)


@program
def regions_by_user_functions():
    """As Fast R-CNN: regions and their targets come from Python, features are pooled for them, two heads learn."""
    classes, count = 3, 4
    image, truth = C.input_variable((3, 16, 16), name="image"), C.input_variable(5, name="truth")
    base = Sequential([Convolution2D((3, 3), 4, activation=C.relu, pad=True), MaxPooling((2, 2), strides=2)])(image)
    rows, columns = np.meshgrid(np.arange(3) / 4.0, np.arange(3) / 4.0)
    corners = np.stack([columns.ravel(), rows.ravel()], axis=1)
    anchors = np.concatenate([corners, corners + 0.5], axis=1).astype(np.float32)
    scores, shifts = Dense(9)(base), 0.1 * C.tanh(Dense(36)(base))
    rois = C.user_function(Proposals(scores, shifts, anchors, count))
    targets = C.user_function(Targets(C.stop_gradient(rois), truth, classes))
    label_targets, box_targets = targets.outputs
    pooled = C.roipooling(base, rois * 16, C.MAX_POOLING, (2, 2), 0.5)
    hidden = Dense(8, activation=C.relu, map_rank=1)(pooled)
    class_scores, boxes = Dense(classes, map_rank=1)(hidden), Dense(4, map_rank=1)(hidden)
    ce = C.cross_entropy_with_softmax(class_scores, label_targets, axis=1)
    difference = C.abs(boxes - box_targets)
    smooth = C.element_select(C.less(difference, 1), 0.5 * C.square(difference), difference - 0.5)
    of_object = 1 - C.slice(label_targets, 1, 0, 1)
    loss = C.reduce_mean(ce) + C.reduce_sum(of_object * smooth) / count
    errors = C.reduce_mean(C.classification_error(class_scores, label_targets, axis=1))
    fix(loss)
    trainer = C.Trainer(None, (loss, errors), [C.momentum_sgd(
        loss.parameters, C.learning_parameter_schedule(0.05), C.momentum_schedule(0.9))])
    boxes_of = np.array([[0.1, 0.1, 0.6, 0.6, 1], [0.3, 0.2, 0.9, 0.8, 2], [0.0, 0.4, 0.5, 1.0, 1]], np.float32)
    feed = {image: numbers(3, 3, 16, 16), truth: boxes_of}
    history = losses(trainer, [feed], 4)
    found = C.combine([rois, class_scores]).eval({image: feed[image]})
    again = C.combine([class_scores]).clone("clone", {base.output: C.placeholder()})
    return {
        "loss": history,
        "metric": trainer.previous_minibatch_evaluation_average,
        "rois": found[rois.output],
        "scores": found[class_scores.output],
        "cloned": [f.name for f in [again.find_by_name("Proposals")] if f is not None],
    }
