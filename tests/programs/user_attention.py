"""Programs of users who read sequences and write others: pronunciations, answers, recurrences by hand."""

import os
import tempfile

import numpy as np
from cntk.layers import GRU, LSTM, Delay, Dense, Embedding, For, Recurrence, Sequential, Stabilizer, UnfoldFrom
from cntk.layers.typing import SequenceOver, Tensor

import cntk as C
from tests.programs.common import fix, losses, numbers, program, words

START, END, SIZE, HIDDEN = 0, 1, 9, 5
input_axis, label_axis = C.Axis("inputAxis"), C.Axis("labelAxis")
InputSequence, LabelSequence = SequenceOver[input_axis], SequenceOver[label_axis]


def pronunciations(folder):
    """Letters S0 and sounds S1, as lines of CNTK's text format; sounds begin with <s> and end with </s>."""
    path, rng = os.path.join(folder, "tiny.ctf"), np.random.RandomState(5)
    with open(path, "w") as f:
        for number in range(12):
            letters = rng.randint(2, SIZE, size=rng.randint(2, 5))
            sounds = [START] + [2 + (i + 3) % (SIZE - 2) for i in letters[::-1]] + [END]
            for step in range(max(len(letters), len(sounds))):
                row = "%d" % number
                if step < len(letters):
                    row += " |S0 %d:1" % letters[step]
                if step < len(sounds):
                    row += " |S1 %d:1" % sounds[step]
                f.write(row + "\n")
    return path


def create_reader(path, is_training):
    return C.io.MinibatchSource(
        C.io.CTFDeserializer(
            path,
            C.io.StreamDefs(
                features=C.io.StreamDef(field="S0", shape=SIZE, is_sparse=True),
                labels=C.io.StreamDef(field="S1", shape=SIZE, is_sparse=True),
            ),
        ),
        randomize=False,
        max_sweeps=C.io.INFINITELY_REPEAT if is_training else 1,
    )


def create_model():
    embed = Embedding(4)
    with C.layers.default_options(enable_self_stabilization=True):
        rec_forward = For(range(2), lambda: Sequential([Stabilizer(), Recurrence(LSTM(HIDDEN))]))
        encode = Sequential(
            [
                embed,
                rec_forward,
                Recurrence(LSTM(HIDDEN), go_backwards=True, return_full_state=True),
                (C.layers.Label("encoded_h"), C.layers.Label("encoded_c")),
            ]
        )
        attend = C.layers.AttentionModel(attention_dim=6, name="attention")
        first, second = LSTM(HIDDEN), LSTM(HIDDEN)
        stab_out, proj_out = Stabilizer(), Dense(SIZE, name="out_proj")

    @C.Function
    def decode(history, input):
        encoded = encode(input)

        @C.Function
        def lstm_with_attention(dh, dc, x):
            return first(dh, dc, C.splice(x, attend(encoded.outputs[0], dh)))

        r = Recurrence(lstm_with_attention)(embed(history))
        return proj_out(stab_out(Recurrence(second)(r)))

    return decode


@program
def pronunciations_with_attention():
    """Trained on the right sounds, then read out greedily, saved, and loaded to be read out again."""
    folder = tempfile.mkdtemp()
    path = pronunciations(folder)
    model = create_model()
    sentence_start = C.constant(np.eye(SIZE, dtype=np.float32)[START])

    @C.Function
    def model_train(input, labels):
        past_labels = Delay(initial_state=sentence_start)(labels)
        return model(past_labels, input)

    @C.Function
    @C.layers.Signature(InputSequence[Tensor[SIZE]])
    def model_greedy(input):
        unfold = UnfoldFrom(
            lambda history: model(history, input) >> C.hardmax,
            until_predicate=lambda w: w[..., END],
            length_increase=1.5,
        )
        return unfold(initial_state=sentence_start, dynamic_axes_like=input)

    @C.Function
    @C.layers.Signature(input=InputSequence[Tensor[SIZE]], labels=LabelSequence[Tensor[SIZE]])
    def criterion(input, labels):
        postprocessed = C.sequence.slice(labels, 1, 0)  # without the <s> at the beginning
        z = model_train(input, postprocessed)
        return C.cross_entropy_with_softmax(z, postprocessed), C.classification_error(z, postprocessed)

    fix(criterion, 0.8)
    learner = C.fsadagrad(
        model_train.parameters,
        lr=C.learning_parameter_schedule([0.3] * 2 + [0.1], epoch_size=40, minibatch_size=16),
        momentum=C.momentum_schedule(0.9366416204111472, minibatch_size=16),
        gradient_clipping_threshold_per_sample=2.3,
        gradient_clipping_with_truncation=True,
    )
    trainer = C.Trainer(None, criterion, learner)
    reader = create_reader(path, True)
    history = []
    while trainer.total_number_of_samples_seen < 700:
        minibatch = reader.next_minibatch(24)
        trainer.train_minibatch({criterion.arguments[0]: minibatch[reader.streams.features],
                                 criterion.arguments[1]: minibatch[reader.streams.labels]})
        history.append(trainer.previous_minibatch_loss_average)
    held = create_reader(path, False).next_minibatch(1000)
    letters = [v for k, v in held.items() if k.m_name == "features"][0]
    decoded = model_greedy(letters)
    saved = os.path.join(folder, "model_0.cmf")
    model_greedy.save(saved)
    again = C.Function.load(saved)(letters)
    attention = sorted(set(f.name for f in C.logging.depth_first_search(
        model_greedy.root_function, lambda f: getattr(f, "name", "").startswith("att"), depth=-1)))
    return {
        "loss": history,
        "metric": trainer.previous_minibatch_evaluation_average,
        "decoded": [d.argmax(axis=-1) for d in decoded],
        "same": all(np.array_equal(a, b) for a, b in zip(decoded, again)),
        "attention": attention,
    }


def gru_by_hand(x, size, name):
    """The equations of a gated unit in slices of one product, as a loop of past_value and placeholders."""
    W, R = C.parameter((x.shape[0], 3 * size), name=name + ".W"), C.parameter((size, 2 * size), name=name + ".R")
    Rc, b = C.parameter((size, size), name=name + ".Rc"), C.parameter(3 * size, name=name + ".b")

    def step(h, x):
        projected = C.times(x, W) + b
        gates = C.sigmoid(projected[: 2 * size] + C.times(h, R))
        update, reset = gates[:size], gates[size:]
        candidate = C.tanh(projected[2 * size :] + C.times(reset * h, Rc))
        return (1 - update) * candidate + update * h

    return step


@program
def gru_unrolled_by_hand():
    """The same gated unit twice: over sequences, and unrolled over an axis of fixed size, with the same numbers."""
    steps, inputs, size = 4, 3, 5
    x, fixed = C.sequence.input_variable(inputs), C.input_variable((steps, inputs))
    step = gru_by_hand(x, size, "gru")
    previous = C.placeholder(shape=(size,), name="previous")
    state = step(C.sequence.past_value(previous, initial_state=0.1), x)
    state = state.replace_placeholders({previous: state.output})
    recurrent = C.sequence.last(state)
    fix(recurrent)
    h = C.constant(0.1, shape=(size,))
    for t in range(steps):
        h = step(h, C.reshape(C.slice(fixed, 0, t, t + 1), (inputs,)))
    data, target = numbers(3, steps, inputs), numbers(3, 1, seed=3)
    head, y = Dense(1), C.input_variable(1)
    z = head(h)
    fix(head, seed=9)
    trainer = C.Trainer(z, C.squared_error(z, y), [C.nesterov(
        z.parameters, C.learning_parameter_schedule(0.1), C.momentum_schedule(0.9))])
    before = [recurrent.eval({x: list(data)}), h.eval({fixed: data})]
    history = losses(trainer, [{fixed: data, y: target}], 5)
    after = [recurrent.eval({x: list(data)}), h.eval({fixed: data})]  # they share their parameters
    return {"before": before, "loss": history, "after": after, "close": bool(np.allclose(*after, atol=1e-6))}


@program
def answers_in_a_passage():
    """R-Net: a passage reads the question in its own recurrence, then itself; two pointers mark the answer."""
    size, dim = 12, 4
    passage_axis, question_axis = C.Axis("passage"), C.Axis("question")
    passage = C.sequence.input_variable(size, sequence_axis=passage_axis, name="passage")
    question = C.sequence.input_variable(size, sequence_axis=question_axis, name="question")
    begin = C.sequence.input_variable(1, sequence_axis=passage_axis, name="begin")
    end = C.sequence.input_variable(1, sequence_axis=passage_axis, name="end")
    encode = Sequential([Embedding(dim), (Recurrence(GRU(dim)), Recurrence(GRU(dim), go_backwards=True)), C.splice])

    def Matched(gate_size, name):
        """A recurrence over states that at each step attends to a memory, and gates what it reads."""
        attend, gate, cell = C.layers.AttentionModel(3, name=name), Dense(gate_size, C.sigmoid, bias=False), GRU(dim)

        def matched(memory, states):
            @C.Function
            def step(h, x):
                seen = C.splice(x, attend(memory, h))
                return cell(h, gate(seen) * seen)

            return Recurrence(step)(states)

        return matched

    def Pointer():
        """Chances of the words, from a state for the whole passage, and what stands where they point."""
        of_word, of_state, score = Dense(dim), Dense(dim, bias=False), Dense(1)

        def point(own, state):
            scores = score(C.tanh(of_word(own) + C.sequence.broadcast_as(of_state(state), own)))
            weights = C.sequence.softmax(scores)
            return weights, C.sequence.reduce_sum(weights * own)

        return point

    of_question, of_passage = Matched(4 * dim, "of_question"), Matched(2 * dim, "of_passage")
    first, second, summarize = Pointer(), Pointer(), Dense(1)

    @C.Function
    def model(passage, question):
        p, q = encode(passage), encode(question)
        aware = of_question(q, p)
        own = of_passage(aware, aware)
        begins, read = first(own, C.sequence.reduce_sum(C.sequence.softmax(summarize(q)) * q))
        ends, _ = second(own, read)
        return begins, ends

    begins, ends = model(passage, question).outputs
    loss = -C.sequence.reduce_sum(begin * C.log(begins) + end * C.log(ends))
    fix(loss)
    learner = C.adadelta(loss.parameters, C.learning_parameter_schedule(20.0), rho=0.95, epsilon=1e-6)
    trainer = C.Trainer(C.combine([begins, ends]), (loss, None), [learner])
    lengths = [5, 3, 4]
    feed = {
        passage: words(lengths, size),
        question: words([2, 3, 1], size, seed=4),
        begin: [np.eye(n, dtype=np.float32)[1][:, None] for n in lengths],
        end: [np.eye(n, dtype=np.float32)[2][:, None] for n in lengths],
    }
    history = losses(trainer, [feed], 6)
    out = C.combine([begins, ends]).eval({passage: feed[passage], question: feed[question]})
    return {"loss": history, "begins": out[begins], "ends": out[ends]}
