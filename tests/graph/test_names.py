"""Names that tell parts of a graph apart: of blocks within blocks, of what they hold, and of siblings."""

import cntkjax as C
from cntkjax.graph.names import leaf_paths, numbered, parents_of, paths_of


def model():
    inner = C.layers.Sequential([C.layers.Dense(2, name="one"), C.layers.Dense(2), C.layers.Dense(2, name="one")])
    block = C.BlockFunction("Encoder", "encoder")(lambda x: inner(x))
    return C.plus(block(C.input_variable(2)), C.parameter(2, name="offset"), name="sum")


def test_paths_lead_through_blocks_and_siblings_of_one_name_are_numbered():
    root = model().root_function
    paths = paths_of(root)
    assert paths[root] == ""
    assert set(paths.values()) == {"", "encoder", "encoder.one", "encoder.Dense", "encoder.one_1"}
    assert [path for node, path in paths.items() if node.op_name == "Times"] == [
        "encoder.one", "encoder.Dense", "encoder.one_1"
    ]


def test_parameters_have_the_path_of_the_operation_that_uses_them():
    function = model()
    paths = leaf_paths(function.root_function)
    assert sorted((paths[p], p.name) for p in function.parameters) == [
        ("", "offset"), *((f"encoder.{block}", name) for block in ("Dense", "one", "one_1") for name in "Wb")
    ]


def test_nodes_have_the_innermost_block_around_them():
    root = model().root_function
    parents = parents_of(root)
    for node, parent in parents.items():
        if node.op_name == "Times":
            assert parent.op_name == "Dense" and parents[parent].op_name == "Encoder"
    assert parents[root] is None


def test_a_number_is_the_first_that_is_free():
    assert [numbered("a", taken) for taken in ((), {"a"}, {"a", "a_1", "a_2"}, {"a_1"})] == ["a", "a_1", "a_3", "a"]
