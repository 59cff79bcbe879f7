"""How the gaps of a rule's template are filled: each chooser returns the text for one, given those chosen before it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from .draft import Draft, tuple_text
from .program import BATCH, SEQUENCE, Type

Chosen = dict[str, str]
Chooser = Callable[[Draft, Chosen], str]


def operand(rank: int | None = None, at_least: int = 0, sequence: bool | None = None, sparse: bool | None = False,
            axes: bool | None = None, closed: bool = False, open_ok: bool = False) -> Chooser:
    """Any variable with these properties; None: whatever it is."""

    def fits(draft: Draft, t: Type) -> bool:
        return (
            (rank is None or t.rank == rank) and t.rank >= at_least and (sparse is None or t.is_sparse == sparse)
            and (sequence is None or t.is_sequence == sequence) and (axes is None or bool(t.axes) == axes)
            and t.dtype == draft.dtype and not (closed and t.is_open)
        )

    def leaf(draft: Draft) -> Type:
        some = draft.random.randint(at_least, max(at_least, 3)) if rank is None and at_least else rank
        shape = draft.shape(some)
        own = (BATCH, draft.random.choice([SEQUENCE, SEQUENCE, "t1"])) if sequence else draft.axes()
        if sequence is False or axes:
            own = own if own and not (sequence is False and len(own) > 1) else (BATCH,)
        if axes is False:
            own = ()
        if sparse or (sparse is None and own and draft.random.random() < 0.3):
            return Type((draft.random.randint(2, 5),), own or (BATCH,), True)
        if shape and own and not closed and draft.random.random() < 0.08:
            shape = (-3, *shape[1:])
        return Type(shape, own)

    return lambda draft, chosen: draft.pick(lambda t: fits(draft, t), lambda: leaf(draft))


ANY = operand()


def matching(draft: Draft, t: Type, change: Callable[[tuple[int, ...]], tuple[int, ...]], sparse: bool = False) -> str:
    """An operand whose shape `change` makes of another's; with its dynamic axes, or none."""
    shape = change(t.shape)
    known = all(a in (BATCH, SEQUENCE, "t1", "t2") for a in t.axes)
    axes = t.axes if known and (sparse or draft.random.random() < 0.6) else ()
    return draft.pick(
        lambda u: u.shape == shape and u.axes in (t.axes, ()) and u.is_sparse == sparse and u.dtype == draft.dtype,
        lambda: Type(shape, axes, sparse),
    )


def like(other: str, broadcast: bool = True, sparse: bool = False) -> Chooser:
    """An operand of the same shape, or one that is broadcast."""

    def change(draft: Draft, shape: tuple[int, ...]) -> tuple[int, ...]:
        kind = draft.random.random() if broadcast else 1
        if kind < 0.2:
            return tuple(1 if draft.random.random() < 0.5 else n for n in shape)
        return shape[draft.random.randint(0, len(shape)):] if kind < 0.4 else shape

    return lambda draft, chosen: matching(
        draft, draft.type_of(chosen[other]), lambda shape: change(draft, shape), sparse
    )


def same_step(other: str, rank: int | None = None) -> Chooser:
    """An operand with the dynamic axes of another, of any shape."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        t = draft.type_of(chosen[other])
        return draft.pick(
            lambda u: u.axes == t.axes and rank in (None, u.rank) and not u.is_sparse and u.dtype == draft.dtype,
            lambda: Type(draft.shape(rank), t.axes),
        )

    return choose


def input_below(other: str) -> Chooser:
    """An input that another operand is computed from."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        found = {chosen[other]}
        for s in reversed(draft.statements):
            found |= set(s.uses) if s.name in found else set()
        return draft.random.choice([s.name for s in draft.statements if s.is_input and s.name in found])

    return choose


def weights(other: str, make: Callable[[Draft, tuple[int, ...]], tuple[int, ...]]) -> Chooser:
    """A parameter whose shape depends on that of another operand."""
    return lambda draft, chosen: draft.leaf(Type(make(draft, draft.type_of(chosen[other]).shape), ()))


def factor(other: str) -> Chooser:
    """The right operand of a product: a matrix, or a tensor of more output axes."""
    return lambda draft, chosen: matching(
        draft, draft.type_of(chosen[other]),
        lambda shape: (shape[-1], *draft.shape(draft.random.choice([0, 1, 1, 1, 2]))),
    )


def axis(other: str, new: bool = False) -> Chooser:
    """A static axis of an operand, from the front or the back; `new`: where one can be inserted."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        rank = draft.type_of(chosen[other]).rank
        return str(draft.random.randint(-rank - 1, rank) if new else draft.random.randint(-rank, max(rank - 1, 0)))

    return choose


def reduced_axes(other: str) -> Chooser:
    """What a reduction may run over."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        t = draft.type_of(chosen[other])
        options = ["None", *(str(i) for i in range(-t.rank, t.rank))]
        options += [f"({i}, {j})" for i in range(t.rank) for j in range(i)]
        options += ["C.Axis.all_static_axes()"] if t.rank else []
        if t.axes and draft.random.random() < 0.3:
            options += ["C.Axis.all_axes()", "C.Axis.default_batch_axis()"]
        return draft.random.choice(options)

    return choose


def number(*choices: object) -> Chooser:
    return lambda draft, chosen: str(draft.random.choice(choices))


def integer(low: int, high: int) -> Chooser:
    return lambda draft, chosen: str(draft.random.randint(low, high))


FLAG = number(True, False)


def reshaped(other: str) -> Chooser:
    """Another shape with as many elements, sometimes with one inferred."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        n = prod(draft.type_of(chosen[other]).shape)
        first = draft.random.choice([i for i in range(1, n + 1) if n % i == 0])
        shape = [first, n // first] + [1] * draft.random.choice([0, 0, 0, 1])
        draft.random.shuffle(shape)
        if draft.random.random() < 0.2:
            shape[draft.random.randrange(len(shape))] = -1
        return tuple_text(tuple(shape))

    return choose


def first_size(other: str) -> Chooser:
    """The size of the first axis."""
    return lambda draft, chosen: str(draft.type_of(chosen[other]).shape[0])


def last_index(other: str, axis_name: str) -> Chooser:
    """The largest index along an axis: CNTK reads other memory beyond it."""
    return lambda draft, chosen: str(draft.type_of(chosen[other]).shape[int(chosen[axis_name])] - 1)


def permutation(other: str) -> Chooser:
    def choose(draft: Draft, chosen: Chosen) -> str:
        order = list(range(draft.type_of(chosen[other]).rank))
        draft.random.shuffle(order)
        return str(tuple(order))

    return choose


def interval(other: str, axis_name: str) -> Chooser:
    """`begin, end` of a slice along an axis, some from the back."""

    def choose(draft: Draft, chosen: Chosen) -> str:
        size = draft.type_of(chosen[other]).shape[int(chosen[axis_name])]
        begin = draft.random.randrange(size)
        end = draft.random.randint(begin + 1, size)
        return f"{begin - size if draft.random.random() < 0.3 and begin else begin}, {end - size if end < size else 0}"

    return choose


def padding(other: str) -> Chooser:
    def choose(draft: Draft, chosen: Chosen) -> str:
        rank = draft.type_of(chosen[other]).rank
        return str([(draft.random.randint(0, 1), draft.random.randint(0, 2)) for _ in range(rank)])

    return choose


def per_axis(other: str, *choices: int) -> Chooser:
    """A number for each axis but the first."""
    return lambda draft, chosen: str(
        tuple(draft.random.choice(choices) for _ in draft.type_of(chosen[other]).shape[1:])
    )
