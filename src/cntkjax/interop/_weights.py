"""Weights by name, in files of this package and of other libraries. An extension: CNTK has none.

A name is that of the blocks around a parameter and its own, such as "hidden.W"; see `weight_names`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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

Layout: TypeAlias = Literal["cntk", "torch", "keras"]
_LAYOUTS: dict[str, Layout] = {
    ".safetensors": "cntk", ".pt": "torch", ".pth": "torch", ".bin": "torch", ".h5": "keras",
}
# What other libraries call the weights of a layer, and the names that this package gives them.
_ALIASES = {
    "weight": ("W", "scale", "E"), "kernel": ("W",), "embeddings": ("E",), "gamma": ("scale",), "beta": ("bias", "b"),
    "bias": ("b", "bias"), "running_mean": ("aggregate_mean",), "moving_mean": ("aggregate_mean",),
    "running_var": ("aggregate_variance",), "moving_variance": ("aggregate_variance",),
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

    `layout`: "torch" transposes the weights of products, as `nn.Linear` has them, which is the default for PyTorch's
    files. Files of PyTorch need the package torch.
    Errors: ValueError for another extension; ImportError; OSError, and an existing file is unchanged.

    >>> import cntkjax as C
    >>> model = C.layers.Dense(2)(C.input_variable(3))
    >>> save_weights(model, "dense.safetensors")  # doctest: +SKIP
    """
    kind, layout = _layout_of(path, layout)
    named = weight_names(model)
    products = _products(model)
    arrays = {name: _laid_out(np.asarray(value_of(v)), v in products, layout) for name, v in named.items()}
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

    `weights`: a .safetensors file, a PyTorch state dict (.pt, .pth, .bin; needs torch), Keras weights (.weights.h5;
    needs h5py), or {name: array}. Files are only read: pickled code in them never runs.
    `names`: {name in the file: name in the model}. Names that are missing there are equal, except for the names that
    PyTorch and Keras give to the weights of a layer: "hidden.weight" is "hidden.W", "norm.running_mean" is
    "norm.aggregate_mean".
    `strict`: whether names that are left over on either side are an error.
    `layout`: "torch" if products have their weights transposed (`nn.Linear`), "keras" if filters have their channels
    last. By default this follows from the extension; "cntk" for .safetensors and arrays.

    Errors: ValueError for names that do not match and for other shapes; then nothing is changed. ImportError.

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
    found: dict[str, np.ndarray] = {}
    unknown = []
    for name, array in arrays.items():
        own = next((n for n in _candidates(name, names or {}) if n in named), None)
        if own is None:
            unknown.append(name)
        else:
            found[own] = _laid_out(_as_array(array), named[own] in products, layout)
    missing = [name for name, leaf in named.items() if name not in found and (leaf.is_parameter or leaf.shape)]
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


def _products(model: Node) -> set[Leaf]:
    """The parameters of products that are layers of vectors, not embeddings."""
    weights = set()
    for node in nodes([model.root_function], into_blocks=True):
        if node.op_name == "Times":
            x, w = node.node_inputs
            leaf = outside(w)
            if isinstance(leaf, Leaf) and len(leaf.shape) == 2 and not outside(x).is_sparse and leaf.name != "E":
                weights.add(leaf)
    return weights


def _laid_out(array: np.ndarray, is_product: bool, layout: Layout) -> np.ndarray:
    """From the layout of CNTK to another one, or back."""
    if layout == "torch" and is_product:
        return array.T
    if layout == "keras" and array.ndim > 2:  # [*window, channels, filters]
        return np.moveaxis(array, (-1, -2), (0, 1))
    return array


def _as_array(value: Any) -> np.ndarray:
    """An array of a library, also one on a device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _read(path: Path, kind: str) -> dict[str, Any]:
    if kind == ".safetensors":
        return decode(path.read_bytes())
    if kind == ".h5":
        h5py = _library("h5py")
        arrays: dict[str, Any] = {}
        with h5py.File(path, "r") as file:
            file.visititems(lambda name, v: arrays.update({name: v[()]}) if isinstance(v, h5py.Dataset) else None)
        return arrays
    state = _library("torch").load(path, map_location="cpu", weights_only=True)
    return dict(state.get("state_dict", state))


def _library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise ImportError(f"files of this kind need the package {name}: pip install {name}") from None


__all__ = ["load_weights", "save_weights", "weight_names"]
