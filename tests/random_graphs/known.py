"""Differences from CNTK 2.7 that are meant: what they look like, and where docs/compatibility.md says so.

A difference is known only if a statement that the value depends on is of the kind that the row is about: a fault in
another part of the same program is still one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from .compare import Difference
from .program import Program, Statement

Predicate = Callable[[Program, Statement], bool]


@dataclass(frozen=True)
class Known:
    """`row` begins a row of docs/compatibility.md; `observed` and `details` are patterns of a difference of this kind.

    `culprit` says of a statement whether such a difference can come from it.
    """

    row: str
    culprit: Predicate
    details: str = ""
    observed: str = ""
    kind: str = "value"


def text(pattern: str) -> Predicate:
    return lambda program, s: bool(re.search(pattern, s.text))


def refused(row: str, statement: str, *messages: str) -> list[Known]:
    """What CNTK refuses, and is accepted here."""
    return [Known(row, text(statement), m, kind="accepted") for m in messages]


def loops_over_another_size(program: Program, s: Statement) -> bool:
    """A loop over values with a free dimension, where minibatches have it in several sizes."""
    sizes = {m.free for m in program.minibatches}
    return bool(re.search("loop|Recurrence|Fold|UnfoldFrom", s.text)) and s.type.is_open and len(sizes) > 1


def is_alias_of_parameter(program: Program, s: Statement) -> bool:
    """A second name of a parameter."""
    uses = [program[u].text for u in s.uses]
    return bool(re.search(r"C\.(alias|combine)\(", s.text)) and all(t.startswith("C.parameter(") for t in uses)


def of_sequences(pattern: str) -> Predicate:
    return lambda program, s: bool(re.search(pattern, s.text)) and any(program[u].type.is_sequence for u in s.uses)


def is_unpacked_gather(program: Program, s: Statement) -> bool:
    before = "".join(a.text for a in program.cone([s.name]))
    shortened = r"C\.sequence\.(gather|scatter|where|slice)|until_predicate|length_increase=1\.5"
    return "C.sequence.unpack" in s.text and bool(re.search(shortened, before))


def makes_steps_of_padding(program: Program, s: Statement) -> bool:
    """A sequence made of the unpacked steps of a gather, which are padded here."""
    operands = [s, *(program[u] for u in s.uses)]
    return "C.to_sequence" in s.text and any(is_unpacked_gather(program, a) for a in operands)


def is_row_of_other_samples(program: Program, s: Statement) -> bool:
    """A vector times a matrix of one column, both with the batch axis."""
    operands = re.match(r"C\.times\((v\d+), (v\d+)", s.text)
    if not operands:
        return False
    left, right = (program[name].type for name in operands.groups())
    return left.rank == 1 and right.shape[1:] == (1,) and bool(left.axes and right.axes)


def compares_sparse_steps(program: Program, s: Statement) -> bool:
    """The largest of the unpacked steps of sparse sequences."""
    unpacked = [a for u in s.uses for a in program.cone([u]) if "C.sequence.unpack(" in a.text]
    return "C.hardmax(" in s.text and any(program[u].type.is_sparse for a in unpacked for u in a.uses)


def is_cropped_to_itself(program: Program, s: Statement) -> bool:
    return bool(re.match(r"C\.crop_manual\((v\d+), \1,", s.text))


def pools_beyond(program: Program, s: Statement) -> bool:
    """Pooling whose last window has its center behind the operand."""
    pattern = r"C\.pooling\((v\d+), \S+ \((.*?)\), \((.*?)\), auto_padding=\[(.*?)\], ceil_out_dim=True"
    options = re.match(pattern, s.text)
    if not options:
        return False
    windows, strides = (map(int, numbers.split(",")) for numbers in options.groups()[1:3])
    centers = (0 if options[4] == "True" else (window - 1) // 2 for window in windows)
    sizes, pooled = program[options[1]].type.shape[1:], s.type.shape[1:]
    axes = zip(centers, strides, sizes, pooled, strict=True)
    return any((n - 1) * step + center >= size for center, step, size, n in axes)


def loops_over_made_steps(program: Program, s: Statement) -> bool:
    """A loop over steps that `to_sequence` makes of several values."""
    made = [u for u in s.uses if any("C.to_sequence(" in a.text for a in program.cone([u]))]
    return bool(re.search("loop|Recurrence|Fold", s.text)) and len(set(made)) > 1


def follows_user_function(pattern: str, is_open: bool = False) -> Predicate:
    """A statement that contains a user function, or reads what one has computed. `is_open`: with a free dimension."""
    return lambda program, s: bool(re.search(pattern, s.text)) and s.type.is_open >= is_open and any(
        "user_function" in a.text for a in program.cone([s.name])
    )


def loops_beside_user_function(program: Program, s: Statement) -> bool:
    """A loop or a delay in a program with a user function."""
    is_loop = bool(re.search("loop|Recurrence|Fold|past_value|future_value|[dD]elay", s.text))
    return is_loop and any("user_function" in other.text for other in program.statements)


def has_operands_of_other_axes(program: Program, s: Statement) -> bool:
    return "C.cosine_distance(" in s.text and len({program[u].type.shape for u in s.uses}) > 1


def divides_by_rounding(program: Program, s: Statement) -> bool:
    """An fmeasure of what is normalized: precision and recall divide by sums that are 0 but for rounding."""
    normalized = r"LayerNormalization|mean_variance_normalization"
    return "C.losses.fmeasure(" in s.text and any(re.search(normalized, program[u].text) for u in s.uses)


def shares_operand(program: Program, s: Statement) -> bool:
    """A transposed convolution whose operand is used elsewhere too, or stands for one that is."""
    if not re.search("convolution_transpose|ConvolutionTranspose", s.text):
        return False
    name = s.uses[-1]
    while True:
        uses = sum(name in other.uses and name != other.name for other in program.statements) + (name in program.roots)
        if uses > 1 or not program[name].text.startswith(("C.alias(", "C.layers.Label(")):
            return uses > 1
        name = program[name].uses[0]


def splices_steps_with_a_leaf(program: Program, s: Statement) -> bool:
    """Steps beside what has no dynamic axes, so that its gradient is summed over all steps."""
    operands = [program[u].type for u in s.uses]
    return "C.splice(" in s.text and any(t.is_sequence for t in operands) and any(not t.axes for t in operands)


def compares_with_itself(program: Program, s: Statement) -> bool:
    """Whether values are greater or less than their own average, where all are equal, or than themselves times 1."""
    operands = re.match(r"C\.(?:less|greater|equal|not_equal)\w*\((v\d+), (v\d+)\)", s.text)
    return operands is not None and any(
        re.search("AttentionModel|Stabilizer", program[a].text) and b in program[a].uses
        for a, b in permutations(operands.groups())
    )


def is_edge_at_one(program: Program, s: Statement) -> bool:
    """The next integer, or `atanh`, of a value's cosine with, or quotient by, itself: 1 but for rounding."""
    one = r"C\.cosine_distance\((v\d+), \1\)|\((v\d+) / \2\)"
    return bool(re.match(r"C\.(atanh|ceil|floor)\(v", s.text)) and bool(re.match(one, program[s.uses[0]].text))


def compares_equal_folds(program: Program, s: Statement) -> bool:
    """The largest element, quotient or cosine of the difference of two folds: 0 but for rounding, if they are equal."""
    folds = r"C\.layers\.Fold\((.*)\)\(v\d+\) - C\.layers\.Fold\(\1, go_backwards=\w+\)"
    at_edge = r"C\.(arg|hard)m|C\.element_divide\((v\d+), \2\)|C\.cosine_distance"
    return bool(re.match(at_edge, s.text)) and bool(re.search(folds, program[s.uses[0]].text))


def is_cyclic_clone(program: Program, s: Statement) -> bool:
    """A clone in which a variable is replaced by what depends on it."""
    pair = re.search(r"\.clone\('\w+', \{(v\d+): (v\d+)\}", s.text)
    return pair is not None and pair[1] in {a.name for a in program.cone([pair[2]])}


def learns_sparse_rows(program: Program, s: Statement) -> bool:
    is_sparse = (s.is_input and s.type.is_sparse) or bool(re.search(r"C\.one_hot\(.*, True\)", s.text))
    return program.learner.startswith("C.nesterov") and is_sparse


def drops_sparse(program: Program, s: Statement) -> bool:
    """Dropout of values that are sparse, or that `unpack` makes of such."""
    operands = [program[u] for u in s.uses]
    behind = [program[u] for operand in operands for u in operand.uses]
    return "Dropout(" in s.text and any(a.type.is_sparse for a in operands + behind)


def drops_uncounted(program: Program, s: Statement) -> bool:
    """Dropout of as many samples, or elements of them, as only the program knows."""
    counted = {axis for a in program.statements if a.is_input for axis in a.type.axes}
    return "Dropout(" in s.text and (s.type.is_open or not counted.issuperset(s.type.axes))


def is_assigned_by_pieces(program: Program, s: Statement) -> bool:
    """A parameter that each evaluation changes, where CNTK may refuse the second of some pieces."""
    return "C.assign(" in s.text and "pieces" in program.observations


def is_assigned(program: Program, s: Statement) -> bool:
    """A root that is another name of a parameter that a statement assigns."""
    is_alias = s.name in program.roots and s.text.startswith(("C.alias(", "C.layers.Label("))
    return is_alias and any(f"C.assign({s.uses[0]}," in other.text for other in program.statements)


def hides_nan(program: Program, s: Statement) -> bool:
    """A gradient that may be NaN in CNTK, after which parameters are 0 with L1 regularization."""
    return "l1_" in program.learner and bool(re.search(ROOTS, s.text))


def is_scalar_input(program: Program, s: Statement) -> bool:
    return s.is_input and s.type.shape == () and bool(s.type.axes)


ROOTS = r"C\.(sqrt|asin|acos|atanh)|reduce_l2|LayerNorm|mean_variance"
FORWARD = "values|loaded|fed|pieces"
BACKWARD = "gradients|training"
AND_LATER = f"{BACKWARD}|values (on the way|again|of other parameters|as they are)"  # with statistics that it leaves
PADS_CHANNELS = r"C\.convolution_transpose\(.*auto_padding=\[True"

KNOWN: Sequence[Known] = [
    *refused("a window larger than the operand", "onvolution|ooling", r"kernel dim \d+ <= input dim",
             r"must be >= ROI window"),
    *refused("`classification_error` and `edit_distance_error` of values",
             "classification_error|edit_distance|weighted_binary|cosine_distance|ndcg|lambda_rank|cross_entropy_with_softmax",
             r"Expected MBLayout in Input", r"MBLayout must be set first", "DoMatrixProductOf: Ranks",
             "Parameter.*ColumnRangeWithMBLayoutFor: FrameRange's dynamic axis"),
    *refused("clones, and generators, of blocks that have one operand twice",
             r"Unfold|C\.Function|clone|self_stabilization|Stabilizer|AttentionModel|steepness|"
             r"C\.mean\(|[\[(](v\d+), (.*, )?\1\b",
             r"of the new clone do not match the cloned inputs", "Block Function '.*': Inputs",
             "of the underlying composite Function of Block"),
    *refused("`clone('freeze')` of a parameter whose shape", "freeze", "^Cannot create an NDArrayView using a view"),
    *refused("gradients of `classification_error`",
             "classification_error|lambda_rank|ndcg|to_sequence|edit_distance|argm|one_hot",
             r"needs input type \(no gradient\)", r"used for evaluation only", r"does not support gradient propgation",
             r"does not participate in gradient propagation", r"OneHot operation found to have incorrect Value"),
    *refused("a function combined with one that was loaded from a file", "reload", r"Duplicated name for",
             r"^CompositeFunction::Deserialize: Unexpected variable"),
    *refused("a slice, gather or convolution that leaves nothing",
             r"C\.sequence\.(slice|gather|where|scatter)|SequentialConvolution|sequential=True",
             r"Sequences must be a least one frame long", r"first entry of a Value mask must be Valid", "bad_alloc"),
    *refused("ends, sums, gathers and unpacked steps of pieces",
             r"sequence\.|Fold|Attention|Unfold|ndcg|lambda_rank|edit", r"accessing a portion of a sequence",
             r"sequence axis reduction for truncated sequence"),
    *refused("adam, fsadagrad, rmsprop with sparse gradients", r"is_sparse|one_hot\(.*, True\)",
             r"Function: (\w+Update|RmsProp|ScaleAndAdd)  -> Feature Not Implemented"),
    *refused("a number as the initial state, or a factor, of a delayed value",
             r"loop\(|Recurrence|Fold|Unfold|_value|sequential=True", r"with different DataTypes"),
    *refused("`sequence.gather` and `scatter` of a constant", r"C\.sequence\.(gather|scatter)",
             r"are you missing a ReconcileDynamicAxis operation"),
    *refused("one value per sequence combined with its steps", "",
             r"Operation '\w+': Operand .* has dynamic axes"),
    *refused("`initializer_with_rank` that omits a rank", "with_rank", r"(Filer|Output) rank of a non-uniform random"),
    *refused("values of a function whose inputs have different", "", r"The DataType of all arguments must be same"),
    *refused("`slice` with a stride larger", "slice", r"NarrowTo: stride \d+ is invalid for interval"),
    *refused("sparse operands of operations that CNTK computes with dense ones", "is_sparse|one_hot|eye_like",
             r"TensorOp: Tensor operations are", r"must be in SparseCSC format",
             r"MultiplyAndWeightedAdd  -> Feature Not", r"must have same storage type",
             r"(AssignHardmaxOf|VectorNorm2)  -> Feature Not", r"Sparse tensors are not supported unless"),
    *refused("the product of weights with a `splice`", r"loop\(.*C\.splice\(",
             r"leading dimensions of the right operand", "dimension cannot be inferred from a left operand"),
    *refused("pooling and convolution of constants", "onvolution|ooling", r"slice \(.*is out of range of the source",
             "^mkl err", "Cannot resize the matrix because it is a view",
             "Reshape: Total number of elements does not match"),
    *refused("a state of a recurrence that nothing reads", r"Recurrence\(lambda h, c",
             r"^Function '.*(The output|: Input)"),
    *refused("`squeeze` of all axes where one is free", "C.squeeze", r"^Squeeze\d+ Reshape operation: Input"),
    *refused("`to_sequence` of unpacked sparse data", "C.to_sequence", "^Dense input data supplied for sparse"),
    *refused("reductions, `slice` and `gather` along the batch", r"default_batch_axis\(\)\], keepdims=False",
             "Cannot query the static axis index for a non-static axis"),
    *refused("training through `stop_gradient` of a batch normalization", r"stop_gradient\(",
             r"^BatchNormalization\d+ is not an input of BatchNormalization", r"^Cannot find input\."),
    *refused("clone of a recurrence with a substitute of another shape or type", r"\.clone\(",
             "^ReconcileDynamicAxis: layout operand '"),
    Known("a minibatch of a `MinibatchSource` for an input of shape `()`", is_scalar_input,
          r"^Value rank \(\d\) should be larger than the Variable rank \(0\)", "training in a session", "accepted"),
    Known("sparse operands of operations that CNTK computes with dense ones", text("input_variable"),
          "Sparse tensors are not supported unless", "fed oddly", "accepted"),
    Known("`hardmax` of the unpacked steps of sparse", compares_sparse_steps),
    Known("a free dimension in a loop", loops_over_another_size, "are not compatible|expected matrix size",
          "training|values again", "accepted"),
    *refused("dense data for a sparse input", "is_sparse=True", "^Dense input data supplied for sparse"),
    *refused("sequences of sparse data without entries", "is_sparse=True", "^Invalid sparse CSC format data"),
    *refused("start flags of an argument that comes before others", "sequence.input_variable",
             "sequence begin markers, but your input does not", "sequence starts cannot be used yet"),
    *refused("a `Value` of another element type", "input_variable", "does not match the corresponding Value's DataType",
             r"^Value::Create: The shape", r"^Value's rank", "^Invalid Value object",
             "The trailing dimensions of the Value shape"),
    *refused("several batch sizes or sequence lengths in one evaluation", "C.user_function",
             "^Different minibatch layouts detected", r"incorrect Value\(\) matrix shape"),
    *refused("a user function of an `alias` of what", "C.user_function", "^SWIG director method error"),
    *refused("int32 data, Python numbers", "input_variable", "'float' object has no attribute"),
    *refused("a recurrence whose step adds the steps of a generator", "UnfoldFrom",
             r"TensorSliceWithMBLayoutFor: FrameRange's dynamic axis is inconsistent"),
    *refused("`Dense` of a scalar", "Dense", r"Input map rank \(0\) must be <"),
    *refused("an input with an inferred dimension", r"input_variable\(\(.*-1", r"sample shape '\[\?",
             "cannot be Inferred"),
    *refused("an initial state that has fewer elements", "RecurrenceFrom", r"VerifySize: expected matrix size"),
    *refused("`SequentialClique` whose last layer", "SequentialClique", r"operation Plus: .* is not compatible"),
    *refused("a loop in the step of a generator", "UnfoldFrom.*loop", r"must have a layout that is identical"),
    *refused("`splice` of operands one of which has a free", r"C\.splice\(", r"Conflicting dimensionality .*\(-3\)"),
    *refused("`gather` of a parameter by indices", r"C\.gather\(", r"with different DataTypes"),
    *refused("`weighted_binary_cross_entropy` of several elements", "weighted_binary",
             r"cannot compute the gradient for its", r"The input matrix dimensions do not match"),
    *refused("`AttentionModel`, `Stabilizer` and cells",
             "AttentionModel|Stabilizer|self_stabilization|steepness|hierarchical", r"with different DataTypes"),
    *refused("`one_hot` with `sparse_output=True` along", r"one_hot\(.*True", r"AssignOneHot: Target matrix size",
             "expected dimension <= 2 array or matrix", "is out of range of the source matrix"),
    *refused("`cosine_distance_with_negative_samples` of vectors", "cosine_distance_with_neg",
             r"^InnerProduct: Both matrices"),
    *refused("gradients of `roipooling` where the regions", "roipooling", r"ColumnRangeWithMBLayoutFor: FrameRange"),
    *refused("a state of a recurrence that nothing reads", r"return_full_state.*outputs\[[01]\]",
             "No computation node mapping exists for Variable Placeholder", r"^Function '.*The output Variable"),
    *refused("`sequence.unpack` and `to_sequence` of sparse data with", r"C\.sequence\.unpack\(",
             "expected dimension <= 2 array or matrix"),
    Known("gradients for an output of a user function that nobody uses",
          text(r"f\.outputs\[(\d)\] \* f\.outputs\[\1\]"), observed=BACKWARD),
    *refused("gradients for an output of a user function that nobody uses", r"f\.outputs\[(\d)\] \* f\.outputs\[\1\]",
             "Map must have width of input vector"),
    *refused("a product over all axes of one of several states", "return_full_state",
             r"right argument shape \[1\] has too few dimensions"),
    Known("an empty minibatch that is reshaped", text("(?i:convolution|pooling|reshape|flatten)"), "an empty minibatch",
          "oddly", "refused"),
    *refused("`to_sequence_like` of scalars", "to_sequence", r"input data of rank >= 2"),
    *refused("a product of weights with the state of a loop", r"loop\(.*C\.times(_transpose)?\((h|g|loop)",
             r"rank \(0\) must be >= #axes"),
    *refused("sparse results of double precision", "is_sparse",
             r"DataType Float does not match the corresponding Value's"),
    Known("a function combined with one that was loaded", text("reload"), observed="structure"),
    Known("parameters that become NaN where", lambda program, s: "l1_" in program.learner, "nan.* here", "training"),
    Known("`test_minibatch` of a metric that no data reach", text(r"\.clone\("),
          "no value in a recurrent loop has a sequence axis", "training evaluated", "refused"),
    Known("dropout of sparse values", drops_sparse),
    Known("a parameter that is an output of the evaluation", is_assigned, observed=FORWARD),
    Known("gradient of `sqrt` at 0", hides_nan, observed="training"),
    Known("an `Evaluator` whose criterion", text(r"clone\(|combine\("),
          r"^\[nan\] in|^1 values in CNTK, 5", "training evaluated"),
    Known("nesterov with the sparse gradient", learns_sparse_rows, observed="training"),
    Known("`sequence.unpack` of a gather", is_unpacked_gather, "^shape", FORWARD),
    Known("`sequence.unpack` of a gather", is_unpacked_gather, r"^\[\d+\.\] in", "values as they are"),
    Known("`sequence.unpack` of a gather", makes_steps_of_padding),
    Known("gradient of a parameter that is spliced with the steps", splices_steps_with_a_leaf, observed=BACKWARD),
    Known("random numbers", drops_uncounted, observed=BACKWARD),
    Known("indices out of range, or NaN, in `gather`", text(r"C\.gather\("), r"nan.* here"),
    Known("indices out of range, or NaN, in `gather`", text(r"C\.gather\("), r"IndexRangeError", kind="refused"),
    Known("a minibatch of a reader whose samples are vectors", lambda program, s: s.is_input and len(s.type.shape) > 1,
          "do not match the variable", "fed oddly", "refused"),
    Known("`num_filters=0` in `Convolution` layers", text("Convolution"), "num_filters .* not 0", kind="refused"),
    Known("shape of a transposed convolution that pads its channels", text(PADS_CHANNELS), kind="type"),
    *refused("shape of a transposed convolution that pads its channels", PADS_CHANNELS, r"kernel dim \d+ <= input dim"),
    Known("`weighted_binary_cross_entropy` of sequences", of_sequences(r"C\.weighted_binary"), r"^\["),
    Known("cosines of zero vectors", text(r"C\.cosine_distance"), r"nan.* in CNTK"),
    Known("gradients of `cosine_distance` of operands", has_operands_of_other_axes, observed=BACKWARD),
    Known("`fmeasure` of values that are normalized", divides_by_rounding),
    Known("gradient of `sqrt` at 0", text(ROOTS),
          r"^\[(\s*nan)+\] in CNTK", BACKWARD),
    Known("`sqrt`, `reduce_l2`, reductions to a maximum or minimum",
          text(r"C\.sqrt|reduce_l2|reduce_m|argm|(?i:max_?pool)"), r"nan.* here"),
    Known("pooling with `ceil_out_dim`", text(r"C\.AVG_POOLING.*ceil_out_dim=True")),
    Known("pooling with `ceil_out_dim`", text(r"C\.MAX_POOLING.*ceil_out_dim=True"), "inf.* here", FORWARD),
    Known("pooling with `ceil_out_dim`", text(r"C\.MAX_POOLING.*ceil_out_dim=True"), observed=BACKWARD),
    Known("pooling with `ceil_out_dim`", pools_beyond),
    Known("`to_sequence` with lengths of which none", text(r"C\.to_sequence\(v\d+, "), "^shape", FORWARD),
    Known("`slice` with more begins, ends or strides than axes", text(r"C\.slice\("), "pass the same number of each",
          kind="refused"),
    Known("a clone in which a variable is replaced by what depends on it", text(r"\.clone\("),
          "cycle without a delayed value", kind="refused"),
    Known("an initial state that has fewer samples", text("UnfoldFrom|Recurrence"),
          "cannot be computed together|different numbers of sequences|an empty minibatch", kind="refused"),
    Known("strides of None or -1", text(r"strides=\(.*None"), "whole numbers", kind="refused"),
    Known("dilated and grouped convolutions", text(r"C\.convolution\(.*groups=2")),
    Known("`times` of a vector and a one-column matrix", is_row_of_other_samples),
    Known("comparisons of values that are equal but for rounding", compares_with_itself),
    Known("comparisons of values that are equal but for rounding", is_edge_at_one),
    Known("comparisons of values that are equal but for rounding", compares_equal_folds),
    Known("`lambda_rank` and `ndcg_at_1` of sequences", of_sequences(r"C\.(lambda_rank|ndcg)")),
    Known("gradients that flow through a `lambda_rank`", text("lambda_rank"), observed=BACKWARD),
    Known("gradients of `tan`, of `pow`", text("roipooling"), observed=BACKWARD),
    Known("gradients of `tan`, of `pow`", text(r"C\.pow\("), observed=BACKWARD),
    Known("gradient of `crop_manual` of a value to its own size", is_cropped_to_itself, observed=BACKWARD),
    Known("gradient of `crop_manual` of a value to its own size", text(r"C\.cast\("), observed=BACKWARD),
    Known("the running variance of a batch normalization", text("BatchNormalization"), "nan.* in CNTK"),
    Known("batch normalization of pieces of sequences", of_sequences("BatchNormalization"), observed="pieces"),
    Known("batch normalization of sequences of vectors", of_sequences("BatchNormalization"), observed=AND_LATER),
    Known("a parameter, by itself or through an `alias`, among the outputs of a training step", is_alias_of_parameter,
          observed="observed"),
    Known("loops over several values of which `to_sequence`", loops_over_made_steps),
    Known("clone: a substitute that is computed from", text(r"\.clone\("), r"\['new'\].* here", kind="type"),
    Known("clone: a substitute that is computed from", is_cyclic_clone, kind="type"),
    Known("gradient of `reduce_prod` at 0", text(r"C\.reduce_prod"), observed=BACKWARD),
    Known("gradient of a value that goes into a transposed convolution", shares_operand, observed=BACKWARD),
    Known("a list of NumPy numbers fed as samples", is_scalar_input, observed="fed oddly"),
    Known("a loop over a user function", follows_user_function("loop|Recurrence|Fold", is_open=True)),
    Known("ends, sums, gathers and unpacked steps of pieces", is_assigned_by_pieces, observed="^(?!pieces)"),
    Known("truncated sequences in a loop over a user function",
          loops_beside_user_function, observed="pieces"),
    Known("a free dimension in a loop", loops_over_another_size),
    Known("a free dimension in a loop", loops_over_another_size, "incompatible with operation dimensions",
          kind="accepted"),
]


def marked(found: Sequence[Difference], program: Program) -> list[Difference]:
    """The differences of a program, those that are known as such, with their row."""
    return [_marked(d, program) for d in found]


def _marked(d: Difference, program: Program) -> Difference:
    statements = program.contributing(d.what, d.place)
    for known in KNOWN:
        matches = d.kind == known.kind and re.search(known.details, d.details) and re.search(known.observed, d.what)
        if matches and any(known.culprit(program, s) for s in statements):
            return replace(d, kind="known", details=f"{known.row} | {d.details}")
    return d
