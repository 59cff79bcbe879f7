"""Reads the text of programs that XLA has compiled: their kernels, and the bytes that these read and write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
         "s64": 8, "u64": 8, "f64": 8}
NO_KERNEL = frozenset({
    "parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "add-dependency", "opt-barrier",
    "copy-done", "async-done", "async-update", "partition-id", "replica-id", "domain",
})
SLICES = frozenset({"dynamic-slice", "gather", "slice"})


@dataclass(frozen=True)
class Instruction:
    """One line of a computation in HLO's text."""

    name: str
    shape: str
    opcode: str
    attributes: str

    @property
    def operands(self) -> list[str]:
        """The names of its operands."""
        return re.findall(r"%([\w.\-$]+)", self.attributes.partition(")")[0])

    def called(self, *roles: str) -> list[str]:
        """The computations that it names in these roles."""
        return [name for role in roles for name in re.findall(rf"\b{role}=\{{?%?([\w.\-$]+)", self.attributes)]


def instructions(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of each computation in a program's text, and the name of the computation it begins with."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-$]+) \(.*\{\s*$", line):
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif current is not None and (body := re.match(r"\s+(?:ROOT )?%?([\w.\-$]+) = (.*)", line)):
            shape, rest = _split_shape(body[2])
            opcode, _, attributes = rest.partition("(")
            current.append(Instruction(body[1], shape, opcode, attributes))
    return computations, entry


def _split_shape(text: str) -> tuple[str, str]:
    """A shape, which may be a nested tuple, and what follows it."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == " ":
            return text[:i], text[i + 1 :]
    return text, ""


def size_of(shape: str) -> int:
    """Bytes of all arrays in a shape."""
    arrays = re.findall(r"\b([a-z]\w*)\[([\d,]*)\]", shape)
    return sum(BYTES.get(kind, 0) * prod(map(int, filter(None, dims.split(",")))) for kind, dims in arrays)


@dataclass(frozen=True)
class Kernels:
    """What one step launches. `kinds`: by kind; `loops`: kernels of one step of each loop, and its number of steps.

    Units: `bytes`, read and written by all kernels, where caches are not considered.
    """

    kinds: Counter[str]
    loops: list[tuple[int, int | None]]
    bytes: int

    @property
    def count(self) -> int:
        """All launches of a step."""
        return sum(self.kinds.values())


def kernels(text: str) -> Kernels:
    """The kernels of a compiled program."""
    computations, entry = instructions(text)
    result = Kernels(Counter(), [], 0)
    moved = 0

    def walk(name: str, times: int) -> int:
        nonlocal moved
        launched, shapes = 0, {i.name: i.shape for i in computations[name]}
        for instruction in computations[name]:
            if instruction.opcode == "while":
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', instruction.attributes)
                steps = int(trips[1]) if trips else 1
                roles = ("body",) if trips else ("body", "condition")
                inside = sum(walk(inner, times * steps) for inner in instruction.called(*roles))
                result.loops.append((inside, steps if trips else None))
                launched += inside * steps
            elif instruction.opcode in ("call", "async-start", "conditional"):
                roles = ("to_apply", "calls", "true_computation", "false_computation", "branch_computations")
                launched += max((walk(inner, times) for inner in instruction.called(*roles)), default=0)
            elif kind := kind_of(instruction, computations):
                launched += 1
                result.kinds[kind] += times
                moved += accessed(instruction, shapes, computations) * times
        return launched

    walk(entry, 1)
    return Kernels(result.kinds, result.loops, moved)


def kind_of(instruction: Instruction, computations: dict[str, list[Instruction]]) -> str:
    """What kind of kernel an instruction launches; '' for none."""
    if instruction.opcode in NO_KERNEL or instruction.opcode.endswith("-done"):
        return ""
    if instruction.opcode == "custom-call":
        target = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
        name = target[1] if target else ""
        if "allback" in name:
            return "callback"
        return "convolution" if "cudnn$conv" in name else "product" if "cublas" in name or "gemm" in name else "library"
    if instruction.opcode != "fusion":
        return instruction.opcode
    inside = {i.opcode for name in instruction.called("calls") for i in computations.get(name, [])}
    for opcode, kind in (("scatter", "scatter"), ("reduce", "reduction"), ("dynamic-update-slice", "store")):
        if opcode in inside:
            return kind
    return "elementwise"


def accessed(
    kernel: Instruction, shapes: Mapping[str, str], computations: Mapping[str, list[Instruction]]
) -> int:
    """Bytes that a kernel reads and writes: of what it slices or updates that part only, and no workspace."""
    workspace = r", [us]8\[\d+\](\{0\})?\)$"
    written = size_of(re.sub(workspace, ")", kernel.shape) if kernel.opcode == "custom-call" else kernel.shape)
    read = [size_of(shapes.get(name, "")) for name in kernel.operands]
    inside = [i for name in kernel.called("calls") for i in computations.get(name, [])]
    for instruction in inside:
        number = instruction.attributes.partition(")")[0]
        if instruction.opcode == "parameter" and int(number) < len(read):
            parts = list(_parts_read(instruction.name, inside))
            read[int(number)] = min([read[int(number)], sum(parts)]) if None not in parts else read[int(number)]
        elif instruction.opcode == "dynamic-update-slice":
            update = next((i.shape for i in inside if i.name == instruction.operands[1]), "")
            written -= size_of(instruction.shape) - size_of(update)
    return max(written, 0) + sum(read)


def _parts_read(name: str, inside: list[Instruction]) -> Iterator[int | None]:
    """Bytes of the slices that a fusion takes of a value; None where it reads all of it."""
    for user in inside:
        if name not in user.operands:
            continue
        if user.opcode in ("bitcast", "reshape"):
            yield from _parts_read(user.name, inside)
        elif user.opcode in SLICES and user.operands[0] == name:
            yield size_of(user.shape)
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == name:
            yield 0
        elif user.opcode != "tuple":
            yield None
