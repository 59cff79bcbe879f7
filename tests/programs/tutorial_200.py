"""Programs after the tutorials on images, language, reinforcement learning, translation, style, rare words, speech."""

import numpy as np
from cntk.layers import (
    LSTM,
    AttentionModel,
    BatchNormalization,
    Convolution,
    Dense,
    Dropout,
    Embedding,
    For,
    GlobalAveragePooling,
    LayerNormalization,
    MaxPooling,
    Recurrence,
    RecurrenceFrom,
    Sequential,
    Stabilizer,
    UnfoldFrom,
)
from cntk.layers.typing import SequenceOver, Tensor

import cntk as C
from tests.programs.common import fix, losses, numbers, one_hot, program, sequences, train, words


@program
def basic_images():
    def create_basic_model(input, out_dims):
        with C.layers.default_options(init=C.glorot_uniform(), activation=C.relu):
            net = Convolution((5, 5), 4, pad=True)(input)
            net = MaxPooling((3, 3), strides=(2, 2))(net)
            net = Convolution((5, 5), 4, pad=True)(net)
            net = MaxPooling((3, 3), strides=(2, 2))(net)
            net = Dense(8)(net)
            net = Dense(out_dims, activation=None)(net)
        return net

    input_var, label_var = C.input_variable((3, 16, 16)), C.input_variable(4)
    feature_scale = 1.0 / 256.0
    z = fix(create_basic_model(C.element_times(feature_scale, input_var), out_dims=4), 0.2)
    ce, pe = C.cross_entropy_with_softmax(z, label_var), C.classification_error(z, label_var)
    lr_per_sample = [0.0015625 / 4] * 10 + [0.00046875 / 4] * 10 + [0.00015625]
    lr_schedule = C.learning_parameter_schedule_per_sample(lr_per_sample, epoch_size=64)
    mm_schedule = C.momentum_schedule([0.9] * 2 + [0.99], epoch_size=16, minibatch_size=8)
    learner = C.momentum_sgd(z.parameters, lr_schedule, mm_schedule, l2_regularization_weight=0.002)
    trainer = C.Trainer(z, (ce, pe), [learner])
    feed = {input_var: 128 + 64 * numbers(8, 3, 16, 16), label_var: one_hot(8, 4)}
    return {"loss": losses(trainer, [feed], 6), "parameters": sum(int(np.prod(p.shape)) for p in z.parameters)}


@program
def terse_images_with_normalization():
    def create_basic_model_with_batch_normalization(input, out_dims):
        with C.layers.default_options(activation=C.relu, init=C.glorot_uniform()):
            model = Sequential(
                [
                    For(
                        range(3),
                        lambda i: [
                            Convolution((5, 5), [3, 3, 4][i], init=C.glorot_uniform(), pad=True),
                            BatchNormalization(map_rank=1),
                            MaxPooling((3, 3), strides=(2, 2)),
                        ],
                    ),
                    Dense(6, init=C.glorot_uniform()),
                    BatchNormalization(map_rank=1),
                    Dropout(0.0),
                    Dense(out_dims, init=C.glorot_uniform(), activation=None),
                ]
            )
        return model(input)

    x, y = C.input_variable((3, 26, 26)), C.input_variable(4)
    z = fix(create_basic_model_with_batch_normalization(x, 4), 0.2)
    feed = {x: numbers(6, 3, 26, 26), y: one_hot(6, 4)}
    result = train(z, C.cross_entropy_with_softmax(z, y), [feed], 0.02)
    result["out"] = z.eval({x: feed[x]})
    return result


@program
def residual_images():
    def convolution_bn(input, filter_size, num_filters, strides=(1, 1), init=C.normal(0.01), activation=C.relu):
        if activation is None:
            activation = lambda x: x  # noqa: E731
        r = Convolution(filter_size, num_filters, strides=strides, init=init, activation=None, pad=True, bias=False)(
            input
        )
        r = BatchNormalization(map_rank=1)(r)
        return activation(r)

    def resnet_basic(input, num_filters):
        c1 = convolution_bn(input, (3, 3), num_filters)
        c2 = convolution_bn(c1, (3, 3), num_filters, activation=None)
        return C.relu(c2 + input)

    def resnet_basic_inc(input, num_filters):
        c1 = convolution_bn(input, (3, 3), num_filters, strides=(2, 2))
        c2 = convolution_bn(c1, (3, 3), num_filters, activation=None)
        s = convolution_bn(input, (1, 1), num_filters, strides=(2, 2), activation=None)
        return C.relu(c2 + s)

    x, y = C.input_variable((3, 16, 16)), C.input_variable(4)
    net = resnet_basic_inc(resnet_basic(convolution_bn(x, (3, 3), 4), 4), 5)
    z = fix(Dense(4, activation=None)(GlobalAveragePooling()(net)))
    return train(z, C.cross_entropy_with_softmax(z, y), [{x: numbers(6, 3, 16, 16), y: one_hot(6, 4)}], 0.02)


def tagger(kind, emb_dim=5, hidden_dim=6, labels=7):
    with C.layers.default_options(initial_state=0.1):
        if kind == "plain":
            return Sequential(
                [
                    Embedding(emb_dim, name='embed'),
                    Recurrence(LSTM(hidden_dim), go_backwards=False),
                    Dense(labels, name='classify'),
                ]
            )
        if kind == "normalized":
            return Sequential(
                [
                    Embedding(emb_dim),
                    LayerNormalization(),
                    Recurrence(LSTM(hidden_dim)),
                    LayerNormalization(),
                    Dense(labels),
                ]
            )
        if kind == "look ahead":

            def OneWordLookahead():
                x = C.placeholder()
                apply_x = C.splice(x, C.sequence.future_value(x))
                return apply_x

            return Sequential([Embedding(emb_dim), OneWordLookahead(), Recurrence(LSTM(hidden_dim)), Dense(labels)])
        if kind == "both ways":

            def BiRecurrence(fwd, bwd):
                F = Recurrence(fwd)
                G = Recurrence(bwd, go_backwards=True)
                x = C.placeholder()
                apply_x = C.splice(F(x), G(x))
                return apply_x

            return Sequential(
                [Embedding(emb_dim), BiRecurrence(LSTM(hidden_dim // 2), LSTM(hidden_dim // 2)), Dense(labels)]
            )
        return Sequential(
            [
                Embedding(emb_dim),
                Stabilizer(),
                For(range(2), lambda: Recurrence(LSTM(hidden_dim))),
                C.sequence.last,
                Dense(labels),
            ]
        )


def language_understanding(kind):
    x = C.sequence.input_variable(25)
    z = fix(tagger(kind)(x))
    y = C.input_variable(7, dynamic_axes=z.dynamic_axes)
    per_word = kind != "intent"
    feed = {x: words([5, 2, 8], 25), y: words([5, 2, 8], 7) if per_word else one_hot(3, 7)}
    ce, pe = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    lr_schedule = C.learning_parameter_schedule([0.03] * 2 + [0.015] * 12, epoch_size=36, minibatch_size=15)
    learner = C.adam(
        z.parameters,
        lr=lr_schedule,
        momentum=C.momentum_schedule(0.9, minibatch_size=15),
        gradient_clipping_threshold_per_sample=15,
        gradient_clipping_with_truncation=True,
    )
    trainer = C.Trainer(z, (ce, pe), [learner])
    return {"loss": losses(trainer, [feed], 6), "out": z.eval({x: feed[x]})}


@program
def tagging():
    return language_understanding("plain")


@program
def tagging_with_layer_normalization():
    return language_understanding("normalized")


@program
def tagging_with_look_ahead():
    return language_understanding("look ahead")


@program
def tagging_both_ways():
    return language_understanding("both ways")


@program
def intent_of_sentences():
    return language_understanding("intent")


@program
def tagging_by_criterion_function():
    """The declarative form: a criterion factory as @Function, its inputs by name, parameters shared with the model."""
    model = tagger("plain")
    x, y = C.sequence.input_variable(25), C.sequence.input_variable(7)
    fix(model(x))

    def create_criterion_function_preferred(model, labels):
        ce = C.cross_entropy_with_softmax(model, labels)
        errs = C.classification_error(model, labels)
        return ce, errs

    ce, errs = create_criterion_function_preferred(model(x), y)
    criterion = C.combine([ce, errs])
    trainer = C.Trainer(None, criterion, [C.sgd(criterion.parameters, C.learning_parameter_schedule(0.3))])
    return {
        "loss": losses(trainer, [{x: words([5, 2], 25), y: words([5, 2], 7)}]),
        "metric": trainer.previous_minibatch_evaluation_average,
    }


@program
def q_learning():
    """An agent's network of rewards learns from a memory of steps, with targets that it computes itself."""
    STATE_COUNT, ACTION_COUNT, GAMMA = 4, 2, 0.99
    observation = C.sequence.input_variable(STATE_COUNT, np.float32, name="s")
    q_target = C.sequence.input_variable(ACTION_COUNT, np.float32, name="q")
    l1 = Dense(8, activation=C.relu)
    l2 = Dense(ACTION_COUNT)
    model = fix(Sequential([l1, l2])(observation))
    loss = C.reduce_mean(C.square(model - q_target), axis=0)
    learner = C.sgd(model.parameters, C.learning_parameter_schedule(0.02), gradient_clipping_threshold_per_sample=10)
    trainer = C.Trainer(model, (loss, loss), learner)
    history = []
    for step in range(4):
        states, states_ = numbers(8, STATE_COUNT, seed=step), numbers(8, STATE_COUNT, seed=step + 50)
        p = model.eval({model.arguments[0]: states})
        p_ = model.eval(states_)
        targets = np.array(p).reshape(8, ACTION_COUNT).copy()
        best = np.amax(np.array(p_).reshape(8, ACTION_COUNT), axis=1)
        targets[np.arange(8), (states[:, 0] > 0).astype(int)] = states[:, 1] + GAMMA * best
        trainer.train_minibatch({observation: states, q_target: targets})
        history.append(trainer.previous_minibatch_loss_average)
    return {"loss": history}


@program
def policy_gradient():
    """Gradients of the policy's logarithm, weighted by rewards, summed over an episode, applied at its end."""
    observations = C.input_variable(4, np.float32, name="obs")
    W1 = C.parameter((4, 5), init=numbers(4, 5, seed=1), name="W1")
    b1 = C.parameter(5, name="b1")
    layer1 = C.relu(C.times(observations, W1) + b1)
    W2 = C.parameter((5, 1), init=numbers(5, 1, seed=2), name="W2")
    b2 = C.parameter(1, name="b2")
    score = C.times(layer1, W2) + b2
    probability = C.sigmoid(score, name="prob")
    input_y = C.input_variable(1, np.float32, name="input_y")
    advantages = C.input_variable(1, np.float32, name="advt")
    loss = -C.reduce_mean(C.log(C.square(input_y - probability) + 1e-4) * advantages, axis=0, name='loss')
    lr_schedule = C.learning_parameter_schedule_per_sample(0.1)
    sgd = C.sgd([W1, W2], lr_schedule)
    buffer = dict(
        (var.name, np.zeros(shape=var.shape)) for var in loss.parameters if var.name in ['W1', 'W2', 'b1', 'b2']
    )
    for episode in range(2):
        x = numbers(6, 4, seed=episode)
        result = loss.grad(
            {observations: x, input_y: one_hot(6, 2, episode)[:, :1], advantages: numbers(6, 1, seed=episode + 7)},
            wrt=loss.parameters,
        )
        for var, grad in result.items():
            buffer[var.name] += grad
    updated = sgd.update({W1: buffer['W1'].astype(np.float32), W2: buffer['W2'].astype(np.float32)}, 2)
    return {"W1": W1.value, "W2": W2.value, "b1": buffer["b1"], "updated": bool(updated)}


def translation(use_attention):
    vocab, hidden, emb = 9, 6, 4
    inputAxis, labelAxis = C.Axis('inputAxis'), C.Axis('labelAxis')
    InputSequence, LabelSequence = SequenceOver[inputAxis], SequenceOver[labelAxis]
    sentence_start = C.Constant(np.array([w == 0 for w in range(vocab)], dtype=np.float32))

    embed = Embedding(emb, name='embed')
    with C.layers.default_options(enable_self_stabilization=True, go_backwards=not use_attention):
        LastRecurrence = C.layers.Fold if not use_attention else Recurrence
        encode = Sequential(
            [
                embed,
                Stabilizer(),
                For(range(1), lambda: Recurrence(LSTM(hidden))),
                LastRecurrence(LSTM(hidden), return_full_state=True),
                (C.layers.Label('encoded_h'), C.layers.Label('encoded_c')),
            ]
        )
    with C.layers.default_options(enable_self_stabilization=True):
        stab_in = Stabilizer()
        rec_blocks = [LSTM(hidden)]
        stab_out = Stabilizer()
        proj_out = Dense(vocab, name='out_proj')
        if use_attention:
            attention_model = AttentionModel(attention_dim=5, name='attention_model')

        @C.Function
        def decode(history, input):
            encoded_input = encode(input)
            r = stab_in(embed(history))
            for i, rec_block in enumerate(rec_blocks):
                if use_attention:
                    if i == 0:

                        @C.Function
                        def lstm_with_attention(dh, dc, x):
                            h_att = attention_model(encoded_input.outputs[0], dh)
                            x = C.splice(x, h_att)
                            return rec_block(dh, dc, x)

                        r = Recurrence(lstm_with_attention)(r)
                    else:
                        r = Recurrence(rec_block)(r)
                else:
                    r = RecurrenceFrom(rec_block)(*(encoded_input.outputs + (r,)))
            return proj_out(stab_out(r))

    @C.Function
    def model_train(input, labels):
        past_labels = C.layers.Delay(initial_state=sentence_start)(labels)
        return decode(past_labels, input)

    @C.Function
    @C.layers.Signature(InputSequence[Tensor[vocab]])
    def model_greedy(input):
        unfold = UnfoldFrom(
            lambda history: decode(history, input) >> C.hardmax,
            until_predicate=lambda w: w[..., vocab - 1],
            length_increase=1.5,
        )
        return unfold(initial_state=sentence_start, dynamic_axes_like=input)

    @C.Function
    @C.layers.Signature(input=InputSequence[Tensor[vocab]], labels=LabelSequence[Tensor[vocab]])
    def criterion(input, labels):
        postprocessed_labels = C.sequence.slice(labels, 1, 0)
        z = model_train(input, postprocessed_labels)
        return C.cross_entropy_with_softmax(z, postprocessed_labels), C.classification_error(z, postprocessed_labels)

    fix(criterion, 0.4)
    learner = C.fsadagrad(
        criterion.parameters,
        lr=C.learning_parameter_schedule_per_sample([0.005] * 2 + [0.0025], 40),
        momentum=C.momentum_schedule(0.9366416204111472, minibatch_size=20),
        gradient_clipping_threshold_per_sample=2.3,
        gradient_clipping_with_truncation=True,
    )
    trainer = C.Trainer(None, criterion, learner)
    feed = {criterion.arguments[0]: words([5, 3], vocab), criterion.arguments[1]: words([4, 6], vocab, seed=3)}
    result = {"loss": losses(trainer, [feed]), "parameters": sorted(str(p.shape) for p in criterion.parameters)}
    if use_attention:
        result["greedy"] = model_greedy(words([5], vocab))[0].argmax(-1).tolist()
    return result


@program
def translation_from_the_last_state():
    return translation(False)


@program
def translation_with_attention():
    return translation(True)


@program
def style_transfer():
    """The image is what learns: content, Gram matrices and total variation, by gradients for an input."""
    size = 10
    x = C.input_variable((3, size, size), needs_gradient=True)
    weights = [
        (0.2 * numbers(4, 3, 3, 3), numbers(4, 1, 1)),
        (0.2 * numbers(5, 4, 3, 3, seed=1), numbers(5, 1, 1, seed=1)),
    ]

    def model(x):
        h, outputs = x, []
        for kernel, bias in weights:
            h = C.relu(C.convolution(C.constant(kernel), h, auto_padding=[False, True, True]) + C.constant(bias))
            outputs.append(h)
            h = C.pooling(h, C.MAX_POOLING, (2, 2), (2, 2))
        return outputs

    def flatten(x):
        return C.reshape(x, (x.shape[0], x.shape[1] * x.shape[2]))

    def gram(x):
        features = C.minus(flatten(x), C.reduce_mean(x))
        return C.times_transpose(features, features)

    def npgram(x):
        features = np.reshape(x, (-1, x.shape[1] * x.shape[2])) - np.mean(x)
        return features.dot(features.T)

    def style_loss(a, b):
        channels, w, h = a.shape
        A = gram(a)
        B = npgram(b)
        return C.squared_error(A, B) / (channels**2 * w**2 * h**2)

    def content_loss(a, b):
        channels, w, h = a.shape
        return C.squared_error(a, b) / (channels * w * h)

    def total_variation_loss(x):
        delta = np.array([-1, 1])
        kernel = np.kron(np.eye(3), delta).reshape(3, 3, 1, 2).astype(np.float32)
        dh = C.convolution(C.constant(kernel), x, auto_padding=[False])
        dv = C.convolution(C.constant(np.ascontiguousarray(kernel.transpose(0, 1, 3, 2))), x, auto_padding=[False])
        return 0.5 * (C.reduce_mean(C.square(dv)) + C.reduce_mean(C.square(dh)))

    y = model(x)
    content, style = numbers(1, 3, size, size, seed=4), numbers(1, 3, size, size, seed=5)
    outputs = C.combine([v.output for v in y])
    ordered_content, ordered_style = outputs.eval({x: content}), outputs.eval({x: style})
    loss = total_variation_loss(x) / 10
    for v in y:
        loss = loss + content_loss(v, ordered_content[v.output][0]) + style_loss(v, ordered_style[v.output][0])
    image, history = numbers(1, 3, size, size, seed=6), []
    for _ in range(4):
        gradient, value = loss.grad({x: image}, outputs=[loss.output], wrt=[x])
        history.append(float(np.squeeze(value)))
        image = image - 0.5 * gradient
    return {"loss": history, "image": image}


@program
def deep_convolutional_gan():
    def bn_with_relu(x, activation=C.relu):
        h = BatchNormalization(map_rank=1)(x)
        return C.relu(h)

    def bn_with_leaky_relu(x, leak=0.2):
        h = BatchNormalization(map_rank=1)(x)
        return C.param_relu(C.constant((np.ones(h.shape) * leak).astype(np.float32)), h)

    def convolutional_generator(z):
        with C.layers.default_options(init=C.normal(scale=0.02)):
            h0 = bn_with_relu(Dense(75, activation=None)(z))
            h1 = C.reshape(h0, (3, 5, 5))
            h2 = bn_with_relu(
                C.layers.ConvolutionTranspose2D(
                    (5, 5), 4, strides=(2, 2), pad=True, output_shape=(10, 10), activation=None
                )(h1)
            )
            h3 = C.layers.ConvolutionTranspose2D(
                (5, 5), 1, strides=(2, 2), pad=True, output_shape=(20, 20), activation=C.sigmoid
            )(h2)
            return C.reshape(h3, 400)

    def convolutional_discriminator(x):
        with C.layers.default_options(init=C.normal(scale=0.02)):
            h0 = C.reshape(x, (1, 20, 20))
            h1 = bn_with_leaky_relu(C.layers.Convolution2D((5, 5), 2, strides=(2, 2), pad=True, activation=None)(h0))
            h2 = bn_with_leaky_relu(Dense(6, activation=None)(h1))
            return Dense(1, activation=C.sigmoid)(h2)

    Z, X_real = C.input_variable(3), C.input_variable(400)
    X_real_scaled = X_real / 255.0
    X_fake = fix(convolutional_generator(Z), seed=1)
    D_real = fix(convolutional_discriminator(X_real_scaled), seed=20)
    D_fake = D_real.clone(method='share', substitutions={X_real_scaled.output: X_fake.output})
    G_loss = 1.0 - C.log(D_fake)
    D_loss = -(C.log(D_real) + C.log(1.0 - D_fake))
    G_learner = C.adam(
        parameters=X_fake.parameters,
        lr=C.learning_parameter_schedule_per_sample(0.002),
        momentum=C.momentum_schedule(0.5),
    )
    D_learner = C.adam(
        parameters=D_real.parameters,
        lr=C.learning_parameter_schedule_per_sample(0.002),
        momentum=C.momentum_schedule(0.5),
    )
    G_trainer = C.Trainer(X_fake, (G_loss, None), G_learner)
    D_trainer = C.Trainer(D_real, (D_loss, None), D_learner)
    of_d, of_g = [], []
    for step in range(3):
        D_trainer.train_minibatch({X_real: 128 + 50 * numbers(6, 400, seed=step), Z: numbers(6, 3, seed=step)})
        of_d.append(D_trainer.previous_minibatch_loss_average)
        Z_data = numbers(6, 3, seed=step + 9)
        G_trainer.train_minibatch({Z: Z_data}, outputs=[G_loss])
        of_g.append(G_trainer.previous_minibatch_loss_average)
    return {"d": of_d, "g": of_g, "made": G_trainer.model.eval({Z: numbers(6, 3)})}


def cross_entropy_with_sampled_softmax(
    hidden_vector, target_vector, num_classes, hidden_dim, num_samples, sampling_weights, allow_duplicates=False
):
    bias = C.Parameter(shape=(num_classes, 1), init=0)
    weights = C.Parameter(shape=(num_classes, hidden_dim), init=0.1 * numbers(num_classes, hidden_dim))
    sample_selector_sparse = C.random_sample(sampling_weights, num_samples, allow_duplicates)
    sample_selector = sample_selector_sparse
    inclusion_probs = C.random_sample_inclusion_frequency(sampling_weights, num_samples, allow_duplicates)
    log_prior = C.log(inclusion_probs)
    wS = C.times(sample_selector, weights, name='wS')
    zS = (
        C.times_transpose(wS, hidden_vector, name='zS1')
        + C.times(sample_selector, bias, name='zS2')
        - C.times_transpose(sample_selector, log_prior, name='zS3')
    )
    wT = C.times(target_vector, weights, name='wT')
    zT = (
        C.times_transpose(wT, hidden_vector, name='zT1')
        + C.times(target_vector, bias, name='zT2')
        - C.times_transpose(target_vector, log_prior, name='zT3')
    )
    zSReduced = C.reduce_log_sum_exp(zS)
    cross_entropy_on_samples = C.log_add_exp(zT, zSReduced) - zT
    z = C.times_transpose(weights, hidden_vector, name='z1') + bias
    z = C.reshape(z, shape=num_classes)
    zSMax = C.reduce_max(zS)
    error_on_samples = C.less(zT, zSMax)
    return z, cross_entropy_on_samples, error_on_samples


@program
def sampled_softmax():
    """Five of six classes are drawn, and the sixth never, so that the loss does not depend on chance."""
    classes, dim = 6, 4
    hidden, target = C.input_variable(dim), C.input_variable(classes, is_sparse=True)
    weights = np.array([[1e-30, 1, 1, 1, 1, 1]], dtype=np.float32)
    z, loss, errs = cross_entropy_with_sampled_softmax(hidden, target, classes, dim, classes - 1, C.constant(weights))
    from scipy.sparse import csr_matrix

    trainer = C.Trainer(z, (loss, errs), [C.sgd(z.parameters, C.learning_parameter_schedule(0.1))])
    feed = {hidden: numbers(5, dim), target: csr_matrix(np.eye(classes, dtype=np.float32)[[1, 5, 3, 3, 2]])}
    result = {"loss": losses(trainer, [feed]), "error": trainer.previous_minibatch_evaluation_average}
    return result


@program
def acoustic_model_with_ctc():
    """Frames to phones: LSTM layers and connectionist temporal classification; blank is the last class."""
    feature, label = C.sequence.input_variable(5), C.sequence.input_variable(4)
    z = Sequential([For(range(2), lambda: Recurrence(LSTM(6))), Dense(4)])(feature)
    fix(z)
    criteria = C.forward_backward(C.labels_to_graph(label), z, blankTokenId=3, delayConstraint=3)
    err = C.edit_distance_error(z, label, squashInputs=True, tokensToIgnore=[3])
    target = [
        np.array(
            [[2, 0, 0, 0]] + [[1, 0, 0, 0]] * 2 + [[0, 2, 0, 0]] + [[0, 1, 0, 0]] * 2 + [[0, 0, 2, 0]] + [[0, 0, 1, 0]],
            np.float32,
        )
    ]
    trainer = C.Trainer(
        z,
        (criteria, err),
        [
            C.momentum_sgd(
                z.parameters, C.learning_parameter_schedule_per_sample(0.01), C.momentum_schedule_per_sample(0.99)
            )
        ],
    )
    result = {"loss": losses(trainer, [{feature: sequences([8], 5), label: target}])}
    result["error"] = trainer.previous_minibatch_evaluation_average
    return result


@program
def structured_similarity():
    """Questions and answers as vectors of words; cosine against one positive and shifted negative answers."""
    query, answer = (
        C.sequence.input_variable(20, is_sparse=True, sequence_axis=C.Axis('q')),
        C.sequence.input_variable(20, is_sparse=True, sequence_axis=C.Axis('a')),
    )

    def tower(x, name):
        return Sequential(
            [
                Embedding(4, name=name + 'embed'),
                Recurrence(LSTM(5), go_backwards=False),
                C.sequence.last,
                Dense(6, activation=C.tanh, name=name + 'proj'),
                Dropout(0.0),
                Dense(4, activation=C.tanh),
            ]
        )(x)

    q, a = tower(query, 'q'), tower(answer, 'a')
    loss = 1.0 - C.cosine_distance_with_negative_samples(q, a, 1, 2)
    loss = C.reduce_mean(loss) if loss.shape == (3,) else loss
    model = C.combine([q, a])
    fix(model)
    from scipy.sparse import csr_matrix

    feed = {
        query: [csr_matrix(w) for w in words([3, 2, 4, 1], 20)],
        answer: [csr_matrix(w) for w in words([2, 5, 1, 3], 20, seed=9)],
    }
    value = loss.eval(feed)
    similarity = C.cosine_distance(q, a).eval(feed)
    return {"loss": value, "similarity": similarity}
