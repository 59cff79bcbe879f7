"""Networks of images: the classics with few filters, segmentation, detection, style. Scripts for CNTK 2.7."""
import numpy as np

from tests.networks.common import adam, classify, momentum, set_weights, train


def vgg16(C):
    L = C.layers
    with C.default_options(activation=C.relu, pad=True):
        network = L.Sequential([
            L.For([(3, 2), (4, 2), (6, 3), (8, 3), (8, 3)], lambda stage: [
                L.For(range(stage[1]), lambda: L.Convolution2D((3, 3), stage[0])),
                L.MaxPooling((2, 2), strides=2)]),
            L.For(range(2), lambda: L.Dense(16)),
            L.Dense(4, activation=None)])
    return classify(C, network, (3, 48, 48), 4, steps=100, batch=8, rate=0.002, learner=adam)


def normalized(C, size, filters, strides=1, pad=True, scale=1):
    L = C.layers
    return L.Sequential([L.Convolution2D(size, filters, strides=strides, pad=pad, bias=False),
                         L.BatchNormalization(map_rank=1, init_scale=scale, normalization_time_constant=512)])


def unit(C, size, filters, strides=1, pad=True):
    """Convolution, batch normalization, rectifier."""
    return C.layers.Sequential([normalized(C, size, filters, strides, pad), C.relu])


def resnet(C, blocks, widths=(4, 6, 8)):
    L = C.layers

    def inner(filters, strides):       # of little weight at first: 110 layers then don't amplify rounding errors
        return L.Sequential([unit(C, 3, filters, strides), normalized(C, 3, filters, scale=0.1)])

    def basic(filters):
        return L.Sequential([L.ResNetBlock(inner(filters, 1)), C.relu])

    def downsampling(filters):
        long, short = inner(filters, 2), normalized(C, 1, filters, 2)
        return lambda x: C.relu(long(x) + short(x))

    first, second, third = widths
    return L.Sequential([
        unit(C, 3, first), L.For(range(blocks), lambda: basic(first)),
        downsampling(second), L.For(range(blocks - 1), lambda: basic(second)),
        downsampling(third), L.For(range(blocks - 1), lambda: basic(third)),
        L.GlobalAveragePooling(), L.Dense(4)])


def resnet20(C):
    return classify(C, resnet(C, 3), (3, 16, 16), 4, steps=100, batch=8, rate=0.1)


def resnet110(C):
    return classify(C, resnet(C, 18, (4, 4, 4)), (3, 12, 12), 4, steps=100, batch=8, rate=0.02)


def side_by_side(C, *branches):
    """Inception: branches over the same operand, their channels one after the other."""
    return lambda x: C.splice(*(branch(x) for branch in branches), axis=0)


def bn_inception(C):
    L = C.layers

    def block(filters, pooling):
        return side_by_side(
            C,
            unit(C, 1, filters),
            L.Sequential([unit(C, 1, 2), unit(C, 3, filters)]),
            L.Sequential([unit(C, 1, 2), unit(C, 3, filters), unit(C, 3, filters)]),
            L.Sequential([pooling((3, 3), pad=True), unit(C, 1, 2)]))

    def reduction(filters):
        return side_by_side(
            C,
            L.Sequential([unit(C, 1, 2), unit(C, 3, filters, 2)]),
            L.Sequential([unit(C, 1, 2), unit(C, 3, filters), unit(C, 3, filters, 2)]),
            L.MaxPooling((3, 3), strides=2, pad=True))

    network = L.Sequential([
        unit(C, 5, 4, 2), block(3, L.AveragePooling), reduction(4), block(4, L.MaxPooling),
        L.GlobalAveragePooling(), L.Dense(4)])
    return classify(C, network, (3, 24, 24), 4, steps=100, batch=8, rate=0.05)


def inception_v3(C):
    """Blocks with 1 x n and n x 1 filters, and those that end in two of them side by side."""
    L = C.layers

    def factorized(filters):
        return side_by_side(
            C,
            unit(C, 1, filters),
            L.Sequential([unit(C, 1, 2), unit(C, (1, 7), 3), unit(C, (7, 1), filters)]),
            L.Sequential([L.AveragePooling((3, 3), pad=True), unit(C, 1, 2)]))

    def expanded(filters):
        return side_by_side(
            C,
            unit(C, 1, filters),
            L.Sequential([unit(C, 1, 3), side_by_side(C, unit(C, (1, 3), filters), unit(C, (3, 1), filters))]),
            L.Sequential([L.AveragePooling((3, 3), pad=True), unit(C, 1, 2)]))

    def reduction(filters):
        return side_by_side(
            C,
            unit(C, 3, filters, 2, pad=False),
            L.Sequential([unit(C, 1, 2), unit(C, (1, 7), 2), unit(C, (7, 1), 2), unit(C, 3, 3, 2, pad=False)]),
            L.MaxPooling((3, 3), strides=2))

    network = L.Sequential([
        unit(C, 3, 4, 2, pad=False), factorized(4), reduction(4), expanded(4),
        L.AveragePooling((5, 5)), L.Dropout(0), L.Dense(4)])
    return classify(C, network, (3, 25, 25), 4, steps=100, batch=8, rate=0.05)


def densenet(C):
    """The input of each layer is the channels of all previous layers."""
    L = C.layers

    def grown(x, layers, growth):
        for _ in range(layers):
            new = L.Sequential([L.BatchNormalization(map_rank=1), C.relu,
                                L.Convolution2D(3, growth, pad=True, bias=False)])
            x = C.splice(x, new(x), axis=0)
        return x

    transition = L.Sequential([unit(C, 1, 6), L.AveragePooling((2, 2), strides=2)])
    network = L.Sequential([
        L.Convolution2D(3, 4, pad=True), lambda x: grown(x, 4, 3), transition, lambda x: grown(x, 4, 3),
        L.BatchNormalization(map_rank=1), C.relu, L.GlobalAveragePooling(), L.Dense(4)])
    return classify(C, network, (3, 16, 16), 4, steps=100, batch=8, rate=0.1)


def squares(count, size=16):
    """Noisy images with a bright rectangle each: [count, 1, size, size], and a mask of the rectangle."""
    random = np.random.RandomState(1)
    masks = np.zeros((count, 1, size, size), np.float32)
    for mask in masks[:, 0]:
        top, left = random.randint(1, size // 2, 2)
        height, width = random.randint(3, size // 2, 2)
        mask[top:top + height, left:left + width] = 1
    return (masks + 0.5 * random.standard_normal(masks.shape)).astype(np.float32), masks


def segmentation(C):
    """Down by pooling, up by unpooling and by a transposed convolution whose border is cropped off."""
    L = C.layers
    image, mask = C.input_variable((1, 16, 16)), C.input_variable((1, 16, 16))
    first = L.Convolution2D(3, 6, C.relu, pad=True)(image)
    half = L.MaxPooling((2, 2), strides=2)(first)
    second = L.Convolution2D(3, 8, C.relu, pad=True)(half)
    quarter = L.MaxPooling((2, 2), strides=2)(second)
    deep = L.Convolution2D(3, 8, C.relu, pad=True)(quarter)
    unpooled = L.MaxUnpooling((2, 2), strides=2)(deep, second)
    up = L.ConvolutionTranspose2D(4, 6, C.relu, strides=2)(unpooled)        # 18 x 18
    joined = C.splice(C.crop_manual(up, first, 1, 1), first, axis=0)
    model = set_weights(L.Convolution2D(3, 1, C.sigmoid, pad=True)(joined))
    images, masks = squares(48)
    feeds = [{image: images[start:start + 8], mask: masks[start:start + 8]} for start in range(0, 48, 8)]
    return train(C, model, C.reduce_mean(C.binary_cross_entropy(model, mask)), momentum(C, model, 0.3), feeds, 200)


def fast_rcnn(C):
    """A head on the pooled regions of a pretrained base, which is cloned and frozen."""
    L, regions = C.layers, 6
    image, mask = C.input_variable((1, 16, 16)), C.input_variable((1, 16, 16))
    features = L.Sequential([L.Convolution2D(3, 6, C.relu, pad=True), L.Convolution2D(3, 6, C.relu, pad=True),
                             L.MaxPooling((2, 2), strides=2, name='features')])
    base = L.Sequential([features, L.ConvolutionTranspose2D(2, 1, C.sigmoid, strides=2)])(image)
    set_weights(base)
    images, masks = squares(48)
    parts = [slice(start, start + 8) for start in range(0, 48, 8)]
    before = train(C, base, C.reduce_mean(C.binary_cross_entropy(base, mask)), momentum(C, base, 0.1),
                   [{image: images[part], mask: masks[part]} for part in parts], 40)

    frozen = C.combine([base.find_by_name('features')]).clone('freeze', {image: C.placeholder()})
    pixels, boxes, labels = (C.input_variable(shape) for shape in ((1, 16, 16), (regions, 4), (regions, 2)))
    pooled = C.roipooling(frozen(pixels), boxes, C.MAX_POOLING, (3, 3), 0.5)
    head = L.Sequential([L.Dense(16, C.relu, map_rank=1), L.Dense(2, map_rank=1)])(pooled)
    assert len(frozen.parameters) == 0 and len(head.parameters) == 4
    set_weights(head, 2)
    corners = np.random.RandomState(2).randint(0, 9, (48, regions, 2))
    rectangles = np.concatenate([corners, corners + 7], axis=2).astype(np.float32)         # x1, y1, x2, y2
    inside = np.array([[masks[i, 0, y:y + 8, x:x + 8].mean() > 0.25 for x, y in corners[i]] for i in range(48)])
    truth = np.eye(2, dtype=np.float32)[inside.astype(int)]
    loss = C.reduce_mean(C.cross_entropy_with_softmax(head, labels, axis=1))
    feeds = [{pixels: images[part], boxes: rectangles[part], labels: truth[part]} for part in parts]
    return before + train(C, head, loss, momentum(C, head, 0.05), feeds, 160)


def style_transfer(C):
    """The pixels are the parameters: they match features of one image and feature correlations of another."""
    L, size = C.layers, 12
    x = C.input_variable((3, size, size))
    first = L.Convolution2D(3, 6, C.relu, pad=True)(x)
    second = L.Sequential([L.AveragePooling((2, 2), strides=2), L.Convolution2D(3, 8, C.relu, pad=True)])(first)
    layers = set_weights(C.combine([first, second])).clone('freeze')
    random = np.random.RandomState(1)
    content, style = (random.rand(1, 3, size, size).astype(np.float32) for _ in range(2))

    def gram(features):
        channels = features.shape[0]
        flat = C.reshape(features, (channels, -1))
        return C.times_transpose(flat, flat) / (flat.shape[1] * channels)

    pixels = C.input_variable((3, size, size), needs_gradient=True)
    drawn = layers.clone('share', {layers.arguments[0]: pixels})
    wanted, painted = layers.eval(content), layers.eval(style)
    loss = C.reduce_mean(C.square(drawn.outputs[1] - C.constant(wanted[layers.outputs[1]][0])))
    for value, seen in zip(drawn.outputs, layers.outputs):  # noqa: B905
        loss += 10 * C.reduce_mean(C.square(gram(value) - gram(C.constant(painted[seen][0]))))
    value, velocity, losses = np.full_like(content, 0.5), 0, []
    for _ in range(200):
        gradient, results = loss.grad({pixels: value}, wrt=[pixels], outputs=[loss.output])
        velocity = 0.9 * velocity - 0.5 * gradient
        value = value + velocity
        losses.append(float(np.ravel(results)[0]))
    return losses


NETWORKS = [vgg16, resnet20, resnet110, bn_inception, inception_v3, densenet, segmentation, fast_rcnn, style_transfer]
