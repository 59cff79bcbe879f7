"""Weights by name, in files of this package and of other libraries. An extension: CNTK has none.

A name is that of the blocks around a parameter and its own, such as "hidden.W"; see `weight_names`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from ..formats import files
from ..formats.safetensors import decode, encode
from ..graph.arguments import public
from ..graph.errors import explain
from ..graph.function import Node, nodes
from ..graph.names import leaf_paths, numbered
from ..graph.variable import Leaf, kind_of, outside, set_value, value_of
from ._cells import OF_KERAS, cell_weight, kinds_of_cells, of_pytorch, taken

Layout: TypeAlias = Literal["cntk", "torch", "keras"]
_LAYOUTS: dict[str, Layout] = {
    ".safetensors": "cntk", ".pt": "torch", ".pth": "torch", ".bin": "torch", ".h5": "keras",
}
# What other libraries call the weights of a layer, and the names that this package gives them. PyTorch's batch
# normalization counts minibatches, where CNTK counts samples; neither number changes what is computed.
_IGNORED = "num_batches_tracked"
_ALIASES = {
    "weight": ("W", "scale", "E"), "kernel": ("W",), "embeddings": ("E",), "gamma": ("scale",), "beta": ("bias", "b"),
    "bias": ("b", "bias"), "running_mean": ("aggregate_mean",), "moving_mean": ("aggregate_mean",),
    "running_var": ("aggregate_variance",), "moving_variance": ("aggregate_variance",),
}
# The weights of layers that are the same in PyTorch, and their names there.
_LIKE_PYTORCH = (
    {"W": "weight", "b": "bias"}, {"E": "weight"},
    {"scale": "weight", "bias": "bias", "aggregate_mean": "running_mean", "aggregate_variance": "running_var"},
)
# What Keras 3 numbers, by the beginnings of the names of its classes.
_NUMBERED = {
    "batch_normalization": ("gamma", "beta", "moving_mean", "moving_variance"), "embedding": ("embeddings",),
    "cell": OF_KERAS,
}


@public
def weight_names(model: Node) -> dict[str, Leaf]:
    """The parameters and constants of a model by their names in files of weights; equal names are numbered.

    >>> import cntkjax as C
    >>> model = C.layers.Sequential([C.layers.Dense(4, name="hidden"), C.layers.Dense(2)])(C.input_variable(3))
    >>> list(weight_names(model))
    ['Dense.W', 'Dense.b', 'hidden.W', 'hidden.b']
    """
    paths = leaf_paths(model.root_function)
    named: dict[str, Leaf] = {}
    for leaf in [*model.parameters, *model.constants]:
        name = ".".join(filter(None, (paths.get(leaf, ""), leaf.name or kind_of(leaf).name)))
        named[numbered(name, named)] = leaf
    return named


@public
def save_weights(model: Node, path: str | os.PathLike[str], layout: Layout | None = None) -> None:
    """Write the parameters and constants of a model by name: ".safetensors", or ".pt" and ".pth" for PyTorch.

    `layout`: "torch" writes what `load_state_dict` reads, which is the default for PyTorch's files: layers of vectors,
    convolutions, normalizations, embeddings, LSTMs and plain recurrent cells have its names and shapes. Files of
    PyTorch need the package torch.
    Errors: ValueError for another extension; ImportError; OSError, and an existing file is unchanged.

    >>> import cntkjax as C
    >>> model = C.layers.Dense(2)(C.input_variable(3))
    >>> save_weights(model, "dense.safetensors")  # doctest: +SKIP
    """
    kind, layout = _layout_of(path, layout)
    named = weight_names(model)
    products = _products(model)
    if layout == "torch":
        named = _named_as_in_pytorch(named)
    cells = kinds_of_cells(model) if layout == "torch" else {}
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in named.items():
        array = np.asarray(value_of(leaf))
        if cells.get(leaf, "GRU") == "GRU":  # PyTorch's GRU is another one
            arrays[name] = _given_out(array, leaf in products, layout)
        else:
            arrays |= of_pytorch(cells[leaf], name, array)
    if kind == ".safetensors":
        files.write((Path(path), encode(arrays)))
    elif kind in (".pt", ".pth"):
        torch = _library("torch")
        torch.save({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, path)
    else:
        raise ValueError(f"weights cannot be written as {kind}: give a name that ends with .safetensors, .pt or .pth")


@public
def load_weights(
    model: Node, weights: str | os.PathLike[str] | Mapping[str, Any], names: Mapping[str, str] | None = None,
    strict: bool = True, layout: Layout | None = None,
) -> list[str]:
    """Give the parameters and constants of a model the values in a file; returns the names of those that got none.

    `weights`: a .safetensors file, a PyTorch state dict (.pt, .pth, .bin; needs torch), weights or a model of Keras 2
    or 3 (.h5; needs h5py), or {name: array}. Files are only read: pickled code in them never runs.
    `names`: {name in the file: name in the model}. Names that are missing there are equal, except for the names that
    PyTorch and Keras give to the weights of a layer: "hidden.weight" is "hidden.W", "norm.running_mean" is
    "norm.aggregate_mean".
    `strict`: whether names that are left over on either side are an error.
    `layout`: "torch" if products have their weights transposed (`nn.Linear`), "keras" if images and filters have their
    channels last. By default this follows from the extension; "cntk" for .safetensors and arrays. The weights of LSTMs,
    plain recurrent cells and Keras' GRUs with `reset_after=False` are put in CNTK's order of gates; PyTorch's
    "rnn.weight_hh_l1_reverse" is "rnn_l1_reverse.H", and "_l0" may be left out.

    Errors: ValueError for names that do not match, for other shapes, and for a GRU that computes something else; then
    nothing is changed. ImportError.

    >>> import cntkjax as C, numpy as np
    >>> model = C.layers.Dense(2, name="h")(C.input_variable(3))
    >>> load_weights(model, {"h.weight": np.ones((2, 3)), "h.bias": np.zeros(2)}, layout="torch")
    []
    >>> model.h.W.value.shape
    (3, 2)
    """
    kind, layout = ("", layout or "cntk") if isinstance(weights, Mapping) else _layout_of(weights, layout)
    arrays = weights if isinstance(weights, Mapping) else _read(Path(weights), kind)
    named, products = weight_names(model), _products(model)
    cells = {} if layout == "cntk" else kinds_of_cells(model)
    found: dict[str, np.ndarray] = {}
    unknown = []
    for name, array in arrays.items():
        own = next((n for n in _candidates(name, names or {}) if n in named), None)
        if own is None and layout == "torch" and name.endswith(_IGNORED):
            continue
        if own is None:
            unknown.append(name)
            continue
        leaf, part, array = named[own], cell_weight(name), _as_array(array)
        if part is None or leaf not in cells:
            found[own] = _taken(array, leaf.shape, leaf in products, layout)
            continue
        for weight, values in taken(cells[leaf], part, array).items():
            target = own.removesuffix(part.ours) + weight
            found[target] = found[target] + values if part.is_summed and target in found else values
    missing = [
        name for name, leaf in named.items()
        if name not in found and (leaf.is_parameter or (leaf.shape and (leaf.name or layout == "cntk")))
    ]
    if strict and (unknown or missing):
        raise ValueError(explain(
            f"load_weights: the names do not match: the model lacks {unknown}, the weights lack {missing}",
            fix="give names={name in the file: name in the model}, or strict=False to load what matches",
        ))
    for name, array in found.items():
        if array.shape != named[name].shape:
            raise ValueError(explain(
                f"load_weights: {name} has the shape {named[name].shape} in the model, and {array.shape} in the file",
                fix='give layout="torch" or layout="keras" for weights of these libraries, or other names',
            ))
    for name, array in found.items():
        set_value(named[name], array.astype(named[name].dtype))
    return missing


def _layout_of(path: str | os.PathLike[str], layout: Layout | None) -> tuple[str, Layout]:
    kind = Path(path).suffix.lower()
    if kind not in _LAYOUTS:
        raise ValueError(f"{os.fspath(path)!r} is no file of weights: its name ends with one of {', '.join(_LAYOUTS)}")
    return kind, layout or _LAYOUTS[kind]


def _candidates(name: str, names: Mapping[str, str]) -> Iterator[str]:
    """The names that one in a file may have in the model."""
    if name in names:
        yield names[name]
        return
    yield name
    *path, last = name.replace("/", ".").split(".")
    for alias in _ALIASES.get(last, ()):
        yield ".".join([*path, alias])
    if part := cell_weight(name):
        yield from (f"{layer}.{part.ours}" for layer in part.paths)


def _products(model: Node) -> set[Leaf]:
    """The parameters of products that are layers of vectors or whole images, not embeddings."""
    weights = set()
    for node in nodes([model.root_function], into_blocks=True):
        if node.op_name == "Times":
            x, w = node.node_inputs
            leaf = outside(w)
            if not isinstance(leaf, Leaf) or leaf.name == "E" or outside(x).is_sparse:
                continue
            if len(leaf.shape) == len(x.shape) + 1:
                weights.add(leaf)
    return weights


def _taken(array: np.ndarray, shape: Sequence[int], is_product: bool, layout: Layout) -> np.ndarray:
    """An array of another library as this package has it, as far as it fits."""
    if layout == "cntk":
        return array
    if is_product:
        array = array.T if layout == "torch" else array
        if array.ndim == 2 < len(shape) and array.size == prod(shape):  # Keras' images are channels last
            channels, *places, outputs = shape
            is_last = layout == "keras"
            array = array.reshape(*places, channels, outputs) if is_last else array.reshape(shape)
            array = np.moveaxis(array, -2, 0) if is_last else array
    elif layout == "keras" and array.ndim > 2:  # [*window, channels, filters]
        array = np.moveaxis(array, (-1, -2), (0, 1))
    missing = len(shape) - array.ndim
    return array.reshape(*array.shape, *[1] * missing) if missing > 0 else array  # the bias of a convolution


def _given_out(array: np.ndarray, is_product: bool, layout: Layout) -> np.ndarray:
    """An array of this package as the other library has it."""
    if layout == "torch" and is_product:
        return array.reshape(-1, array.shape[-1]).T
    if layout == "keras" and array.ndim > 2:
        return np.moveaxis(array, (0, 1), (-1, -2))
    is_bias = layout == "torch" and array.ndim > 1 and array.size == array.shape[0]
    return array.reshape(-1) if is_bias else array


def _named_as_in_pytorch(named: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Without counts of samples and constants without a name, of which PyTorch knows nothing."""
    layers: dict[str, dict[str, Leaf]] = {}
    for name, leaf in named.items():
        path, _, last = name.rpartition(".")
        if leaf.is_parameter or (leaf.shape and leaf.name):
            layers.setdefault(path, {})[last] = leaf
    result: dict[str, Leaf] = {}
    for path, weights in layers.items():
        names = next((each for each in _LIKE_PYTORCH if weights.keys() <= each.keys()), {})
        result |= {".".join(filter(None, (path, names.get(last, last)))): leaf for last, leaf in weights.items()}
    return result


def _as_array(value: Any) -> np.ndarray:
    """An array of a library, also one on a device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _read(path: Path, kind: str) -> dict[str, Any]:
    if kind == ".safetensors":
        return decode(path.read_bytes())
    if kind == ".h5":
        with _library("h5py").File(path, "r") as file:
            return dict(_of_keras(file))
    state = _library("torch").load(path, map_location="cpu", weights_only=True)
    return dict(state.get("state_dict", state))


def _of_keras(file: Any) -> Iterator[tuple[str, Any]]:
    """Weights of Keras as "layer.kernel"; those of the optimizer are left out.

    Keras 2, and models, list layers and weights in attributes. Keras 3 numbers the weights of a layer, in groups that
    are named by its class and have the layer's name as an attribute.
    """
    root = file.get("model_weights", file)
    if "layer_names" in root.attrs:
        for layer in map(_text, root.attrs["layer_names"]):
            yield from _of_keras_2(layer, root[layer])
        return
    groups: list[Any] = []
    root.visititems(lambda name, group: groups.append(group) if hasattr(group, "keys") else None)
    for group in groups:
        weights = [key for key in group if hasattr(group[key], "shape")]
        kind = ["", *group.name.split("/")][-2]
        if kind == "optimizer" or not weights:
            continue
        names = next((each for begin, each in _NUMBERED.items() if kind.startswith(begin)), ("kernel", "bias"))
        of_layer = file.get(f"{group.name.rpartition('/cell/')[0]}/vars", group) if kind == "cell" else group
        layer = _text(of_layer.attrs.get("name", kind))
        is_layer = group.name.endswith("/vars") and len(weights) <= len(names)
        for key in weights:
            yield (f"{layer}.{names[int(key)]}" if is_layer else f"{group.name}/{key}".strip("/")), group[key][()]


def _of_keras_2(layer: str, group: Any) -> Iterator[tuple[str, Any]]:
    """The weights of a layer, or of those within it, such as both directions: "forward_lstm.kernel".

    With the CNTK backend Keras 2 wrote "bidirectional_1_forward_lstm/kernel", others "…_1/forward_lstm/…".
    """
    names = {name: name.split(":")[0].split("/") for name in map(_text, group.attrs["weight_names"])}
    is_one = len({path[-1] for path in names.values()}) == len(names)
    for name, (*path, last) in names.items():
        inner = [part for part in path if not part.endswith("_cell")]
        yield f"{layer if is_one else inner[-1].removeprefix(f'{layer}_')}.{last}", group[name][()]


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise ImportError(f"files of this kind need the package {name}: pip install {name}") from None


__all__ = ["load_weights", "save_weights", "weight_names"]
