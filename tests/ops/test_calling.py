"""Functions from Python callables, calls, and composition, as CNTK 2.7 has them."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L

x, y = C.input_variable(2, name="x"), C.input_variable(2, name="y")


def names(f):
    return [v.name for v in f.arguments]


class TestFromPython:
    def test_arguments_are_placeholders_named_like_them(self):
        f = C.Function(lambda a, b: a - b)
        assert names(f) == ["a", "b"] and all(v.is_placeholder for v in f.arguments)

    def test_arguments_keep_their_order_whatever_the_order_in_the_graph(self):
        f = C.Function(lambda a, b: b - a)
        assert names(f) == ["a", "b"]
        assert f.root_function.inputs[0].owner.op_name == "Tuple"  # as CNTK's files have it
        np.testing.assert_array_equal(f(x, y).eval({x: [[1, 2]], y: [[5, 5]]}), [[4, 3]])
        assert names(f(x, y)) == names(f(x, y).clone("clone")) == ["x", "y"]

    @pytest.mark.parametrize(("f", "outputs"), [
        (lambda a, b: (a + 1, b), ["Plus", "Tuple"]),  # the arguments are traversed as b, a: a block puts them in order
        (lambda a, b: (b + 1, a), ["Plus", None]),
        (lambda a, b: (lambda z: (z, b, z))(a + b), ["Plus", "Tuple", "NoOp"]),
        (lambda a, b: (C.combine([a + b, b - 1]), a), ["Plus", "Minus", None]),
    ])
    def test_results_are_the_outputs_of_cntk(self, f, outputs):
        function = C.Function(f)
        assert [v.owner.root_function.op_name if v.is_output else None for v in function.outputs] == outputs
        assert names(function) == ["a", "b"]

    def test_a_result_that_comes_twice_is_evaluated_twice(self):
        f = C.Function(lambda a: (lambda z: (z, z))(a + 1))(x)
        values = f.eval({x: [[1, 2]]})
        np.testing.assert_array_equal([values[v] for v in f.outputs], [[[2, 3]]] * 2)

    def test_types_make_inputs(self):
        @C.Function
        def f(a: L.Tensor[2], b: L.Sequence[L.Tensor[2]]):
            return C.sequence.broadcast_as(a, b) + b

        a, b = f.arguments
        assert a.is_input and a.shape == (2,) and b.dynamic_axes == C.sequence.input_variable(2).dynamic_axes

    def test_optional_arguments_keep_their_defaults(self):
        assert names(C.Function(lambda a, scale=3: a * scale)) == ["a"]
        assert names(C.Function(C.relu)) == ["x"]
        assert names(C.Function(lambda a, **others: a * (3 + len(others)))) == ["a"]

    def test_operations_of_any_number_of_operands_get_two(self):
        assert names(C.Function(C.plus)) == ["arg1", "arg2"]

    @pytest.mark.parametrize(
        "f, match",
        [
            (lambda a, b: a, r"1 unused arguments \(b\)"),
            (lambda a: 5, r"1 unused arguments \(a\)"),
            (lambda a: a + x, r"1 missing arguments \(x\)"),
            (lambda a: None, "must return a value"),
            (lambda *a: a[0], "fixed number of arguments"),
        ],
    )
    def test_wrong_arguments_are_errors(self, f, match):
        with pytest.raises(TypeError, match=match):
            C.Function(f)

    def test_blocks_show_as_one_operation_of_that_name(self):
        f = C.BlockFunction("Difference", "d")(lambda a, b: b - a)
        assert (f.root_function.op_name, f.name, names(f)) == ("Difference", "d", ["a", "b"])
        assert str(f(x, y)) == "d: Difference(x: Tensor[2], y: Tensor[2]) -> Tensor[2]"

    def test_a_block_of_another_function_adds_no_operation(self):
        f = C.BlockFunction("Same", "")(lambda a: L.identity(C.relu(a)))
        assert f.block_root.op_name == "ReLU"


def test_types_can_be_set_later():
    f = L.Sequential([L.Dense(3), L.Dense(2)])
    f.update_signature(L.Sequence[L.Tensor[4]])
    (argument,) = f.arguments
    assert argument.is_input and f.parameters[2].shape == (4, 3)
    assert f.dynamic_axes == argument.dynamic_axes
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        f.update_signature(3, 4)


def test_a_type_without_an_element_type_has_the_default_one():
    x = C.input_variable(4, np.float64)
    with C.default_options(dtype=np.float64):
        f = L.Dense(2)
        f.update_signature(L.Tensor[4])
        signed = C.Function(L.Signature(L.Tensor[4])(lambda x: x * 2))
        assert f(x).dtype == signed(x).dtype == np.float64


class TestComposition:
    def test_the_next_function_receives_all_outputs(self):
        both = C.Function(lambda a: (a + 1, a * 2)) >> C.minus
        np.testing.assert_array_equal(both(x).eval({x: [[3, 5]]}), [[-2, -4]])

    def test_a_tuple_follows_one_output_or_each_of_several(self):
        f = C.Function(lambda a: a + 1) >> (C.negate, C.square) >> (C.negate, C.negate)
        values = f(x).eval({x: [[1, 2]]})
        np.testing.assert_array_equal(list(values.values()), [[[2, 3]], [[-4, -9]]])

    def test_composition_from_right_to_left(self):
        f = C.Function(lambda a: a * 2) << C.Function(lambda a: a + 1)
        np.testing.assert_array_equal(f(x).eval({x: [[1, 2]]}), [[4, 6]])

    def test_identity_is_one_function_with_the_ids_of_cntk(self):
        assert L.identity.arguments[0].uid == "Placeholder0"
        assert L.Sequential([]) is L.identity is C.ops.functions.identity


class TestClones:
    def test_a_substitute_that_shares_an_input_is_copied(self):
        f, other = x + y, C.input_variable(2, name="other")
        shares, independent = y * other, other * other
        assert len(f.clone("share", {x: shares}).arguments) == 2
        assert other in f.clone("share", {x: independent}).arguments
        assert other not in f.clone("share", {x: shares}).arguments
        assert f(shares, y).arguments == (y, other)

    def test_a_substitute_for_the_root_is_not_copied(self):
        f = C.relu(x)
        more = f + y
        assert f.clone("share", {f: more}).root_function is more.root_function


@pytest.mark.parametrize(("operands", "arguments", "parameters"), [
    ([x + 1, y], ["y", "x"], []),
    ([C.plus(x, C.parameter(2, name="p")), C.parameter(2, name="q"), x * y, y], ["y", "x"], ["q", "p"]),
    ([C.combine([x + 1, y]), y - x], ["y", "x"], []),
])
def test_leaves_come_first_in_the_arguments_of_a_combination(operands, arguments, parameters, tmp_path):
    f = C.combine(operands)
    f.save(str(tmp_path / "f"))
    for g in (f, f.clone("clone"), C.Function.load(str(tmp_path / "f"))):
        assert (names(g), [p.name for p in g.parameters]) == (arguments, parameters)


def test_an_operand_that_is_used_twice_is_one_argument_of_the_node():
    node = C.splice(x, y, x).root_function
    assert (names(node), [v.name for v in node.inputs]) == (["x", "y"], ["x", "y", "x"])
    assert str((x * x).root_function) == "ElementTimes(x: Tensor[2]) -> Tensor[2]"


def test_combine_keeps_duplicate_outputs():
    f = C.combine(x, x)
    assert len(f.outputs) == 2 and f[0] is x


@pytest.mark.parametrize(
    "variable, text",  # as CNTK 2.7 prints types
    [
        (C.input_variable(()), "np.float32"),
        (C.input_variable((2, 3), dtype=np.float64), "Tensor[np.float64,2,3]"),
        (C.input_variable(3, dynamic_axes=[]), "ParameterTensor[3]"),
        (C.sequence.input_variable(3), "Sequence[Tensor[3]]"),
        (C.sequence.input_variable(3, sequence_axis=C.Axis("t")), "SequenceOver[t][Tensor[3]]"),
        (C.placeholder(), "Sequence[tensor]"),
    ],
)
def test_types_in_signatures(variable, text):
    assert str(C.relu(variable)) == f"ReLU({text}) -> {text}"


class TestCornerCases:
    """Corner cases in which CNTK 2.7 behaves unexpectedly."""

    def test_calling_a_function_without_arguments_returns_its_value(self):
        assert (C.parameter((2,), init=3) * 2)().tolist() == [6, 6]

    def test_several_outputs_have_no_shape_of_their_own(self):
        both = C.combine([x + 1, x * 2])
        assert not hasattr(both, "shape") and not hasattr(both, "needs_gradient")
        with pytest.raises(AttributeError, match="each of its 2 outputs has its own"):
            both.shape  # noqa: B018
        for use in (lambda: both.output, lambda: both + 1, lambda: both.grad({x: [[1, 2]]}, wrt=[x])):
            for kind in (ValueError, RuntimeError):
                with pytest.raises(kind, match="2 outputs, not one"):
                    use()

    def test_names_of_arguments_must_be_known_and_unique(self):
        f = x + y
        np.testing.assert_array_equal(f.eval({"x": [[1, 2]], "y": [[3, 4]]}), [[4, 6]])
        with pytest.raises(ValueError, match="no argument is called 'z'; the names are: 'x', 'y'"):
            f.eval({"z": [[1, 2]]})
        with pytest.raises(ValueError, match="2 arguments are called 'x'"):
            (x + C.input_variable(2, name="x")).eval({"x": [[1, 2]]})

    def test_gradients_exist_only_for_inputs_of_the_graph(self):
        inner = x * x
        f = inner + 1
        state, _ = f.forward({x: [[1, 2]]}, [f.output], {f.output})
        for wrt in (y, inner.output):
            with pytest.raises(ValueError, match="no input, parameter or constant"):
                f.grad({x: [[1, 2]]}, wrt=[wrt])
            with pytest.raises(ValueError, match="no input, parameter or constant"):
                f.backward(state, {f.output: np.ones((1, 2))}, {wrt})

    def test_setting_an_unknown_attribute_is_an_error(self):
        with pytest.raises(RuntimeError, match="no attribute 'dropoutRate' that can be set"):
            (x + 1).set_attribute("dropoutRate", 0.5)

    def test_a_search_by_name_goes_to_the_requested_depth(self):
        p = C.placeholder()
        block = C.as_block(C.alias(p * 2, "inner"), [(p, x)], "Block", "outer")
        f = block + 1
        assert block.root_function.block_arguments_mapping[0][0].name == "x"  # it takes the operand's name
        assert f.find_by_name("inner") is None and f.find_by_name("inner", 1).name == "inner"
        assert [len(f.find_all_with_name("inner", depth)) for depth in (0, 1, -1)] == [0, 1, 1]
        assert f.find_all_with_name(None) == []
        assert f.outer.inner.name == "inner"

    def test_the_arguments_of_a_block_are_placeholders_with_an_operand_each(self):
        p, a = C.placeholder(), C.input_variable(2, name="a")
        for body, pairs in ((C.relu(a), [(a, x)]), (C.relu(a), []), (C.relu(p), [(p, x), (a, x)])):
            with pytest.raises(ValueError, match="'a'.* is not a placeholder"):
                C.as_block(body, pairs, "Block")
        with pytest.raises(ValueError, match="no operand for Placeholder"):
            C.as_block(C.relu(p), [], "Block")
        assert a.name == "a" and C.relu(a).arguments == (a,)

    def test_a_composite_has_the_name_of_its_block(self):
        p = C.placeholder()
        block = C.as_block(p * 2, [(p, x)], "Block", "outer")
        assert block.name == block.clone("share").name == "outer" and str(block).startswith("outer: Block(")
        assert C.combine([block]).name == C.as_composite(block.root_function).name == ""

    def test_substitutions_are_a_dict_and_may_replace_the_output(self):
        f = x * 2
        with pytest.raises(TypeError, match="substitutions = .* a dict"):
            f.clone("share", [x])
        rest = f.clone("share", {f.output: y})
        assert rest.root_function.op_name == "Combine" and rest.arguments == (y,)

    def test_dynamic_axes_follow_from_the_substitutes(self):
        s = C.sequence.input_variable(2)
        clone = (x * 2).clone("share", {x: s})
        assert clone.dynamic_axes == s.dynamic_axes
        assert [v.tolist() for v in clone.eval({s: [[[1, 2], [3, 4]]]})] == [[[2, 4], [6, 8]]]


def test_values_are_keyed_by_the_requested_functions_or_variables():
    x = C.input_variable(2, needs_gradient=True)
    f, g = C.square(x), C.exp(x)
    both, feed = C.combine([f, g]), {x: [[1, 2]]}
    assert list(both.eval(feed, outputs=[f, g])) == [f, g]
    assert list(both.eval(feed)) == list(both.outputs)
    assert list(both.forward(feed, [f])[1]) == [f]
    state, values = both.forward(feed, [f.output], [f, g.output])
    assert list(values) == [f.output]
    np.testing.assert_allclose(both.backward(state, {f: np.ones((1, 2))}, [x])[x], [[2, 4]])
    assert list(both.grad(feed, grad_root=f, outputs=[f, g])[1]) == [f, g]
    np.testing.assert_allclose(f.grad(feed, outputs=[]), [[2, 4]])


def test_a_call_with_data_returns_the_values_of_all_outputs_in_order():
    """As in CNTK, where `eval` gives a dict: CNTK's sequence to sequence model shows its attention so."""
    both = C.combine([x * 2, x + 1])
    doubled, more = both([[1, 2]])
    np.testing.assert_array_equal([doubled, more], [[[2, 4]], [[2, 3]]])
    assert set(both.eval({x: [[1, 2]]})) == set(both.outputs)


def of_type(*types):
    @C.Function
    @L.typing.Signature(*types)
    def f(x):
        return C.alias(x)

    return f


VALUES = {
    "x": x, "3": C.input_variable(3), "3 x 2": C.input_variable((3, 2)), "2 x 3": C.input_variable((2, 3)),
    "sequence": C.sequence.input_variable(2), "double": C.input_variable(2, dtype=np.float64),
    "sparse": C.input_variable(2, is_sparse=True), "scalar": C.input_variable(()), "any": C.placeholder(),
    "placeholder": C.placeholder(2), "constant": C.constant([1.0, 2]), "number": C.constant(2.0),
    "free": C.input_variable((C.FreeDimension, 2)), "axis": C.sequence.input_variable(2, sequence_axis=C.Axis("other")),
}
ACCEPTED = {  # by CNTK 2.7, of these; all others are a TypeError
    "Tensor[2]": {"x", "3 x 2", "constant", "free"},
    "Sequence[Tensor[2]]": {"sequence", "constant"},
    "SparseTensor[2]": {"sparse"},
    "Tensor[3,2]": {"3 x 2"},
    "np.float32": {"scalar", "number"},
    "tensor": set(VALUES),
}
TYPES = {
    "Tensor[2]": L.Tensor[2], "Sequence[Tensor[2]]": L.Sequence[L.Tensor[2]], "SparseTensor[2]": L.SparseTensor[2],
    "Tensor[3,2]": L.Tensor[3, 2], "np.float32": L.Tensor[()], "tensor": L.tensor,
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("declared", TYPES)
def test_arguments_take_variables_of_their_type(declared, value):
    f = of_type(TYPES[declared])
    if value in ACCEPTED[declared]:
        f(VALUES[value])
    else:
        reason = "known shape, and cannot be passed a Variable of unknown" if value == "any" else "is incompatible with"
        with pytest.raises(TypeError, match=f"argument x.*{reason}"):
            f(VALUES[value])


@pytest.mark.parametrize("use", [
    lambda f: C.Function(lambda a: f(a) + 1), lambda f: L.Sequential([f, L.Dense(2)]), lambda f: L.Dense(2) >> f,
])
def test_a_typed_function_takes_no_argument_of_unknown_type(use):
    f = of_type(L.Tensor[2])
    with pytest.raises(TypeError, match="argument x has a known shape, and cannot be passed a Variable of unknown"):
        use(f)
    assert (f >> L.Dense(3))(x).shape == (3,)


def test_types_are_not_changed_later():
    f = L.Dense(3)
    f.update_signature(L.Tensor[2])
    with pytest.raises(TypeError, match=r"type Tensor\[2\] is incompatible with the type Tensor\[4\]"):
        f.update_signature(L.Tensor[4])


@pytest.mark.parametrize("kind, dtype, is_sparse, axes", [
    (L.Tensor[2], np.float32, False, 1), (L.Tensor[np.float64, 2], np.float64, False, 1),
    (L.SparseTensor[2], np.float32, True, 1), (L.ParameterTensor[2], np.float32, False, 0),
    (L.Sequence[L.Tensor[2]], np.float32, False, 2), (L.Sequence[L.SparseTensor[2]], np.float32, True, 2),
    (L.SequenceOver[C.Axis("words")][L.Tensor[2]], np.float32, False, 2), ({"shape": (2,)}, np.float32, False, 1),
], ids=str)
def test_types_of_every_form_declare_an_argument(kind, dtype, is_sparse, axes):
    declared, named = C.placeholder(name="x") * 2, C.placeholder(name="x") * 2
    declared.update_signature(kind)
    named.update_signature(x=kind)
    signed = C.Function(L.Signature(kind)(lambda x: 2 * x))
    for f in (declared, named, signed, C.Function.with_signature(x=kind)(lambda x: 2 * x)):
        (x,) = f.arguments
        assert (x.shape, x.dtype, x.is_sparse, len(x.dynamic_axes)) == ((2,), dtype, is_sparse, axes)
        assert (f.shape, f.dynamic_axes) == ((2,), x.dynamic_axes)


@pytest.mark.parametrize("kind", [L.Tensor, L.SparseTensor, L.ParameterTensor, L.Sequence, L.SequenceOver])
def test_a_type_without_its_shape_is_an_error_and_no_endless_loop(kind):
    with pytest.raises(TypeError):
        C.layers.Dense(2).update_signature(kind)
    with pytest.raises(TypeError):
        C.placeholder(kind)


def test_function_from_python_keeps_the_order_of_its_arguments():
    @C.Function
    def f(a, b):
        return b - a

    assert [v.name for v in f.signature] == ["a", "b"]
    x, y = C.input_variable(1), C.input_variable(1)
    np.testing.assert_array_equal(f(x, y).eval({x: [[1]], y: [[5]]}), [[4]])
    np.testing.assert_array_equal(f(b=x, a=y).eval({x: [[1]], y: [[5]]}), [[-4]])


@pytest.mark.parametrize("call, message", [
    (lambda f, x: f(x), "expected 2 arguments, got 1"),
    (lambda f, x: f(x, x, x), "expected 2 arguments, got 3"),
    (lambda f, x: f(x, c=x), "unexpected keyword argument 'c'"),
])
def test_invalid_calls_are_errors(call, message):
    f = C.Function(lambda a, b: a + b)
    with pytest.raises(TypeError, match=message):
        call(f, C.input_variable(1))


@pytest.mark.parametrize("kind, dtype, text", [
    (np.float64, np.float64, "np.float64"), (np.float32, np.float32, "np.float32"), (float, np.float32, "float"),
], ids=str)
def test_types_of_numbers_are_those_of_scalars(kind, dtype, text):
    """As in CNTK, which prints these types."""
    declared = C.placeholder(name="x") * 2
    declared.update_signature(kind)
    hinted = C.Function(L.Signature(L.Sequence[kind])(lambda x: 2 * x))
    for f, axes in (declared, 1), (C.Function(L.Signature(kind)(lambda x: 2 * x)), 1), (hinted, 2):
        (x,) = f.arguments
        assert (x.shape, x.dtype, len(x.dynamic_axes)) == ((), dtype, axes)
    assert str(L.Sequence[kind]) == f"Sequence[{text}]"


@pytest.mark.parametrize("hint", [3, (2, 3), int, "x", L.Tensor], ids=str)
def test_hints_that_are_no_types_say_nothing(hint):
    (x,) = C.Function(L.Signature(hint)(lambda x: 2 * x)).arguments
    assert x.is_placeholder


def test_sequences_of_sequences_are_refused():
    for sequence in L.Sequence, L.SequenceOver[C.Axis("words")]:
        with pytest.raises(TypeError, match="sequences of sequences are not supported"):
            sequence[L.Sequence[L.Tensor[2]]]


def test_each_type_belongs_to_one_argument():
    f = C.Function(lambda a, b: a + b)
    for kinds, named, message in [
        ((3,), {"c": 3}, "unexpected keyword argument 'c'; it can be b"),
        ((3,), {"a": 3}, "unexpected keyword argument 'a'; it can be b"),
        ((3, 4), {"b": 3}, "expected 2 arguments, got 3"),
        ((3,), {}, "expected 2 arguments, got 1"),
        ((), {"b": 3}, "expected 2 arguments, got 1"),
    ]:
        with pytest.raises(TypeError, match=message):
            f.update_signature(*kinds, **named)
