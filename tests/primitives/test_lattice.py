"""Lattices are scored as CNTK 2.7 scores the same bytes; gradients against finite differences and enumerated paths."""

import struct

import numpy as np
import pytest

import cntkjax as C

STATES = 6
PHONES = "sil three s0 s1 s2\nsp one s1\nx three s3 s4 s5\ny one s2\n"
TRANSITIONS = "three 3 0.9 0.1 0 0 0.6 0.3 0.1 0 0 0.5 0.4 0.1 0 0 0.7 0.3\none 1 0.8 0.2 0.5 0.5\n"
SCALED = {"seqGammarAMF": 2.0, "seqGammarLMF": 3.0, "seqGammarWordPen": 0.7}


def unit(number, frames, last=True):
    return number | frames << 19 | last << 31


def lattice(nodes, edges, words, version=2, tail=b""):
    """Edges are (begin, end, first word, whether other frames are implied); words are units, or scores as floats."""
    data = struct.pack("<4siIIffdII", b"LAT ", version, len(nodes), len(edges), 1, 0, 0.01, nodes[-1], 1)
    data += b"NODS" + struct.pack(f"<i{len(nodes)}H", len(nodes), *nodes) + b"EDGS" + struct.pack("<i", len(edges))
    data += b"".join(struct.pack("<Q", b | e << 20 | any(more) << 39 | first << 40) for b, e, first, *more in edges)
    data += b"ALNS" + struct.pack("<i", len(words))
    return data + b"".join(struct.pack("<f" if isinstance(w, float) else "<I", w) for w in words) + tail


ONE = lattice(
    [0, 4, 4, 9], [(0, 1, 1), (0, 2, 3), (1, 3, 6), (2, 3, 8, 1), (0, 3, 10)],
    [-0.5, unit(0, 4), 0.25, unit(2, 3, False), unit(3, 1), -1.0, unit(2, 5), 0.5, unit(0, 3), 0.0,
     unit(3, 4, False), unit(0, 5)],
)
TWO = lattice(
    [0, 3, 5, 5], [(0, 1, 1), (0, 2, 3), (1, 2, 5), (2, 3, 7)],
    [0.1, unit(2, 3), 0.2, unit(0, 5), 0.3, unit(3, 2), -0.4, unit(1, 0)],
)
LIKELIHOOD = np.sin(np.arange(9)[:, None] * 3 + np.arange(STATES)).astype(np.float32)
LABELS = np.eye(STATES, dtype=np.float32)[[0, 0, 1, 2, 3, 4, 4, 5, 5]]


def floats(data):
    return np.frombuffer(data + bytes(-len(data) % 4), np.float32).reshape(-1, 1)


@pytest.fixture
def paths(tmp_path):
    """The files of symbols, phones, states and transitions."""
    texts = {"symbols": "sil\nsp\nx\ny\n", "phones": PHONES, "transitions": TRANSITIONS}
    texts["states"] = "".join(f"s{i}\n" for i in range(STATES))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in ("symbols", "phones", "states", "transitions")}


def built(paths, **options):
    label, predicted, likelihood = (C.sequence.input_variable(STATES, needs_gradient=True) for _ in range(3))
    bytes_of = C.sequence.input_variable(1, sequence_axis=C.Axis("lattice"))
    operands = label, predicted, likelihood, bytes_of
    return C.lattice_sequence_with_softmax(*operands, *map(str, paths.values()), **options), operands


def value(paths, *lattices, likelihoods=(LIKELIHOOD,), labels=(LABELS,), **options):
    loss, operands = built(paths, **options)
    data = [*labels], [np.zeros_like(x) for x in labels], [*likelihoods], [floats(x) for x in lattices]
    return float(loss.eval(dict(zip(operands, data, strict=True))))


def gradients(paths, data, likelihood=LIKELIHOOD, labels=LABELS, predicted=None, **options):
    """With respect to labels, predictions and likelihoods."""
    loss, operands = built(paths, **options)
    predicted = np.zeros_like(likelihood) if predicted is None else predicted
    feeds = dict(zip(operands, ([labels], [predicted], [likelihood], [floats(data)]), strict=True))
    results = loss.grad(feeds, wrt=operands[:3])
    return [results[v][0] for v in operands[:3]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, -0.5143871),
        ({"seqGammarUsesMBR": True}, -1.5357035),
        (SCALED, 2.7605922),
        ({**SCALED, "seqGammarUsesMBR": True}, -1.0543866),
        ({"seqGammarBMMIFactor": 0.5, "latticeConfigPath": "nowhere"}, -0.5143871),
    ],
)
def test_values_match_cntk(paths, options, expected):
    assert value(paths, ONE, **options) == pytest.approx(expected, rel=1e-5)


def test_sequences_are_summed(paths):
    both = value(paths, ONE, TWO, likelihoods=(LIKELIHOOD, LIKELIHOOD[2:7]), labels=(LABELS, LABELS[2:7]), **SCALED)
    assert both == pytest.approx(2.7605922 + 0.9604576, rel=1e-5)


def test_bytes_and_frames_after_a_lattice_are_ignored(paths):
    longer = value(paths, TWO + bytes(40), likelihoods=[LIKELIHOOD[2:9]], labels=[LABELS[2:9]], **SCALED)
    assert longer == pytest.approx(0.9604576, rel=1e-5)


def test_without_a_path_the_value_matches_cntk_and_the_gradient_is_0(paths):
    cut = lattice([0, 3, 4], [(0, 1, 1)], [0.0, unit(2, 3)])
    labels = LABELS[[0] * 4]
    assert value(paths, cut, likelihoods=[LIKELIHOOD[:4]], labels=[labels]) == pytest.approx(4e30)
    assert not gradients(paths, cut, LIKELIHOOD[:4], labels)[1].any()


def test_the_gradient_by_labels_is_that_of_the_cross_entropy(paths):
    predicted = np.cos(LIKELIHOOD * 5)
    by_labels, _, by_likelihoods = gradients(paths, ONE, predicted=predicted)
    np.testing.assert_allclose(by_labels, np.log(np.exp(predicted).sum(1, keepdims=True)) - predicted, rtol=1e-5)
    assert not by_likelihoods.any()


@pytest.mark.parametrize("risk", [False, True])
def test_the_gradient_of_sequences_is_the_derivative_of_the_value(paths, risk):
    """Up to a factor that CNTK omits: for posteriors the scale of likelihoods, for the risk that of labels."""
    options = {"seqGammarUsesMBR": risk, **SCALED}
    actual = gradients(paths, ONE, hSmoothingWeight=1.0, frameDropThresh=-1.0, **options)[1]
    for frame, state in ((0, 0), (2, 4), (3, 2), (5, 4), (8, 1)):
        values = []
        for step in (0.05, -0.05):
            likelihood = LIKELIHOOD.copy()
            likelihood[frame, state] += step
            values.append(value(paths, ONE, likelihoods=[likelihood], **options))
        slope = (values[0] - values[1]) / 0.1
        expected = slope - LABELS[frame, state] / SCALED["seqGammarAMF"] if risk else -slope * SCALED["seqGammarAMF"]
        assert actual[frame, state] == pytest.approx(expected, abs=1e-3)


def test_sequence_and_frame_errors_are_mixed_and_improbable_frames_dropped(paths):
    predicted = np.cos(LIKELIHOOD * 5)
    soft = np.exp(predicted) / np.exp(predicted).sum(1, keepdims=True)
    of_sequence = gradients(paths, ONE, hSmoothingWeight=1.0, frameDropThresh=-1.0)[1]
    mixed = gradients(paths, ONE, predicted=predicted, hSmoothingWeight=0.75, frameDropThresh=0.3)[1]
    certain = ((of_sequence + LABELS) * LABELS).sum(1)
    want = np.where(certain[:, None] >= 0.3, 0.25 * (soft - LABELS) + 0.75 * of_sequence, 0)
    np.testing.assert_allclose(mixed, want, atol=1e-6)
    assert 0 < (certain < 0.3).sum() < len(certain)


def test_training_makes_the_labels_more_probable(paths):
    label, bytes_of = C.sequence.input_variable(STATES), C.sequence.input_variable(1, sequence_axis=C.Axis("lattice"))
    features = C.sequence.input_variable(9)
    scores = C.layers.Dense(STATES, init=0)(features)
    loss = C.lattice_sequence_with_softmax(label, scores, scores, bytes_of, *map(str, paths.values()))
    trainer = C.Trainer(None, loss, C.sgd(scores.parameters, C.learning_parameter_schedule(0.5)))
    data = {label: [LABELS], features: [np.eye(9, dtype=np.float32)], bytes_of: [floats(ONE)]}
    averages = []
    for _ in range(5):
        trainer.train_minibatch(data)
        averages.append(trainer.previous_minibatch_loss_average)
    assert trainer.previous_minibatch_sample_count == 9
    assert averages == sorted(averages)  # as in CNTK it is log p(labels) - log p(all paths)
    assert averages[-1] > averages[0] + 0.01


def test_features_labels_and_lattices_of_files(paths, tmp_path, monkeypatch):
    """Two utterances in one minibatch; the sum is CNTK's for these files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.ark").write_bytes(ONE + TWO)
    (tmp_path / "all.toc").write_text(f"a=all.ark[0]\nb=[{len(ONE)}]\n")
    (tmp_path / "lattices.list").write_text("all.toc\n")
    (tmp_path / "x.htk").write_bytes(struct.pack(">iihh", 9, 100000, 24, 6) + LIKELIHOOD.astype(">f4").tobytes())
    (tmp_path / "x.scp").write_text("a.mfc=x.htk[0,8]\nb.mfc=x.htk[2,6]\n")
    labels = [LABELS.argmax(1), LABELS[2:7].argmax(1)]
    rows = [
        f'"{name}.lab"\n' + "".join(f"{i}00000 {i + 1}00000 s{label}\n" for i, label in enumerate(states)) + ".\n"
        for name, states in zip("ab", labels, strict=True)
    ]
    (tmp_path / "y.mlf").write_text("#!MLF!#\n" + "".join(rows))
    io = C.io
    source = io.MinibatchSource([
        io.HTKFeatureDeserializer(io.StreamDefs(x=io.StreamDef(shape=STATES, scp="x.scp"))),
        io.HTKMLFDeserializer("states", io.StreamDefs(y=io.StreamDef(shape=STATES, mlf="y.mlf"))),
        io.LatticeDeserializer("lattices.list", io.StreamDefs(z=io.StreamDef())),
    ], randomize=False)
    label, scores = C.sequence.input_variable(STATES, is_sparse=True), C.sequence.input_variable(STATES)
    bytes_of = C.sequence.input_variable(1, sequence_axis=C.Axis("lattice"))
    loss = C.lattice_sequence_with_softmax(label, scores, scores, bytes_of, *map(str, paths.values()), **SCALED)
    streams = source.streams
    data = source.next_minibatch(74, {scores: streams.x, label: streams.y, bytes_of: streams.z})
    assert data[scores].num_sequences == 2
    assert loss.eval(data) == pytest.approx(3.7210498, rel=1e-5)


def test_a_saved_criterion_computes_the_same(paths, tmp_path):
    loss, _ = built(paths, **SCALED)
    loss.save(str(tmp_path / "model"))
    loaded = C.load_model(str(tmp_path / "model"))
    assert loaded.root_function.attributes["SeqGammarAMF"] == 2
    data = [LABELS], [np.zeros_like(LABELS)], [LIKELIHOOD], [floats(ONE)]
    assert loaded.eval(dict(zip(loaded.arguments, data, strict=True))) == pytest.approx(2.7605922, rel=1e-5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"LAD " + ONE[4:], "begins with 'LAT '"),
        (ONE[:30], "begins with 'LAT ' and a header"),
        (lattice([0, 9], [(0, 1, 1)], [0.0, unit(0, 9)], version=1), "version 1"),
        (ONE[:60], "section 'EDGS' of a lattice is missing at byte 56"),
        (ONE[:-4], "section 'ALNS' of a lattice has 12 entries"),
        (ONE[:40] + b"NODS" + struct.pack("<i", 5) + ONE[48:], "section 'NODS' of a lattice has 5 entries"),
        (ONE[:32] + struct.pack("<I", 8) + ONE[36:], "is not at its end, frame 8"),
        (lattice([0, 12, 9], [(0, 1, 1)], [0.0, unit(0, 12)]), "is not at its end, frame 9"),
        (lattice([0, 9], [(1, 1, 1)], [0.0, unit(0, 9)]), "does not lead from one of its nodes to a later one"),
        (lattice([0, 9], [(0, 2, 1)], [0.0, unit(0, 9)]), "does not lead"),
        (lattice([0, 9], [(0, 1, 1)], [0.0, unit(0, 9, False)]), "have no end"),
        (lattice([0, 9], [(0, 1, 7)], [0.0, unit(0, 9)]), "have no end"),
        (lattice([0, 9], [(0, 1, 1)], [0.0, unit(0, 8)]), "more or fewer frames"),
        (lattice([0, 9], [(0, 1, 1, 1)], [0.0, unit(0, 10)]), "more or fewer frames"),
        (lattice([0, 9], [(0, 1, 1)], [0.0, unit(4, 9)]), "unit 4 of a lattice is not among the 4 symbols"),
        (lattice([0, 10], [(0, 1, 1)], [0.0, unit(0, 10)]), "utterance of 9 frames has 10 frames"),
    ],
)
def test_damaged_lattices_are_errors_with_the_position(paths, data, reason):
    with pytest.raises(RuntimeError, match=reason):
        value(paths, data)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("symbols", "sil\n\nw\n", "symbols, line 3: unit 'w' is not in"),
        ("phones", PHONES + "sil one s1", "phones, line 5: unit 'sil' is defined twice"),
        ("phones", "sil four s1", "phones, line 1: the transitions of unit 'sil' are not in"),
        ("phones", "sil one s9", "phones, line 1: state 's9' of unit 'sil' is not in"),
        ("phones", "sil one s1 s2", "phones, line 1: unit 'sil' has 2 states, its transitions 1"),
        ("transitions", "one 1 0.8 0.2 0.5", "transitions, line 1: 1 states have 4 transitions, not 3"),
        ("transitions", "one x 0.8 0.2 0.5 0.5", "transitions, line 1: 'one x 0.8 0.2 0.5 0.5' is not 'name states"),
        ("states", None, "error opening file '.*states'"),
    ],
)
def test_errors_in_model_files_name_the_line(paths, name, text, reason):
    paths[name].unlink()
    if text is not None:
        paths[name].write_text(text)
    with pytest.raises(RuntimeError, match=reason):
        value(paths, ONE)


def test_changed_model_files_are_read_again(paths):
    before = value(paths, ONE)
    paths["transitions"].write_text(TRANSITIONS.replace("0.5 0.5", "0.9 0.1"))
    assert value(paths, ONE) != before


def test_wrong_operands_are_errors():
    size, other = C.sequence.input_variable(5), C.sequence.input_variable(4)
    bytes_of = C.sequence.input_variable(1, sequence_axis=C.Axis("lattice"))
    files = "a", "b", "c", "d"
    for operands in ((size, other, size), (size, size, other)):
        with pytest.raises(ValueError, match="labels, predictions and log likelihoods differ in shape"):
            C.lattice_sequence_with_softmax(*operands, bytes_of, *files)
    with pytest.raises(ValueError, match="all operands have to be sequences"):
        C.lattice_sequence_with_softmax(size, size, size, C.input_variable(1), *files)
    eye = [np.eye(5, dtype=np.float32)]
    loss = C.lattice_sequence_with_softmax(size, size, size, bytes_of, *files, doReferenceAlign=True)
    with pytest.raises(RuntimeError, match=r"alignment is not supported; leave out doReferenceAlign"):
        loss.eval({size: eye, bytes_of: [floats(ONE)]})
    double = C.sequence.input_variable(5, dtype=np.float64)
    wide = C.sequence.input_variable(1, dtype=np.float64, sequence_axis=C.Axis("lattice"))
    loss = C.lattice_sequence_with_softmax(double, double, double, wide, *files)
    with pytest.raises(RuntimeError, match="has to be float32"):
        loss.eval({double: eye, wide: [floats(ONE)]})
