"""What is written alike for several libraries: rows of calls, and functions that the source contains if it uses them.

LIB is the library's name in the source. The functions use `steps_of`, `rows_of` and `recurrence`, which each library
has its own of.
"""

from __future__ import annotations

from typing import Any

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "less": "<", "greater": ">", "less_equal": "<=",
    "greater_equal": ">=", "equal": "==", "not_equal": "!=", "power": "**", "matmul": "@",
}


def _reshape(x: str, lead: int, shape: tuple[int, ...]) -> str:
    if lead == 2 or -1 in shape:
        return f"reshape_samples({x}, {shape}{'' if lead == 2 else f', {lead}'})"
    return f"{x}.reshape({', '.join(map(str, [-1] * (lead == 1) + list(shape))) or '()'})"


def calls(lib: str, dtype: str, infinity: str) -> dict[str, Any]:
    """The rows that are alike; `dtype` is the format of a type: "jnp.{dtype}"."""
    return {
        **{name: f"({{}} {sign} {{}})" for name, sign in _INFIX.items()},
        "negative": "(-{})",
        "where": f"{lib}.where({{}}, {{}}, {{}})",
        "scalar": "{value!r}",
        "item": "{}[{index}]",
        "tuple": lambda *parts: f"({', '.join(parts)})",
        "slice": "{}[{slices}]",
        "reshape": _reshape,
        "to_index": "{}.astype(int)",
        "gather": lambda x, index, lead: f"{x}[{':, ' * lead}{index}]",
        "full_like": f"{lib}.full_like({{}}, {{value}})",
        "eye_like": f"{lib}.eye(*{{}}.shape, dtype={dtype})",
        "recurrence": lambda *operands: f"recurrence({', '.join(operands)})",
        **filling(lib, dtype),
        "expanded": lambda x, like, shape: f"{lib}.broadcast_to({x}, ({_sizes(f'{like}.shape[0]', shape)}))",
        "spread": lambda x, like, lead: f"{lib}.broadcast_to({x}, (*{like}.shape[:{lead}], *{x}.shape[{lead}:]))",
        "rolled": f"{lib}.roll({{}}, {{steps}}, 0)",
        "first": "{}[:, 0]",
        "last": "at_step({}, {} - 1)",
        "masked": lambda x, lengths, value: f"masked({x}, {lengths}, {repr(float(value)).replace('inf', infinity)})",
        "step_mask": "step_mask({}, {})",
        "at_step": "at_step({}, {})",
        "at_steps": "at_steps({}, {})",
        "all_steps": f"{lib}.full(({{0}}.shape[0],), {{0}}.shape[1], dtype={dtype.format(dtype='int32')})",
        "reversed": "reversed_sequences({}, {})",
        "delayed": "delayed({}, {}, {steps})",
        "ahead": "ahead({}, {}, {}, {steps})",
        "selected": "selected({})",
        "scattered": "scattered({}, {}, {})",
        "range_lengths": "range_lengths({}, {begin}, {end})",
        "region_maxima": "region_maxima({}, {}, {shape}, {scale!r})",
    }


def filling(lib: str, dtype: str, more: str = "") -> dict[str, Any]:
    """The rows that fill an array with as many samples as another one; `more`: further arguments, with {like}."""
    call = f"{lib}.full(({{sizes}}), {{value!r}}, dtype={dtype}{more})"

    def filled_like(like: str, lead: int, shape: tuple[int, ...], **options: Any) -> str:
        return call.format(sizes=_sizes(f"*{like}.shape[:{lead}]", shape), like=like, **options)

    def filled(like: str, shape: tuple[int, ...], **options: Any) -> str:
        return call.format(sizes=_sizes(f"{like}.shape[0]", shape), like=like, **options)

    return {"filled": filled, "filled_like": filled_like}


def _sizes(lead: str, shape: tuple[int, ...]) -> str:
    return ", ".join([lead, *map(str, shape)]) + ("" if shape else ",")


_HELPERS = {
    "steps_of": '''
def steps_of(x):
    """The numbers of the steps of x [batch, time, ...]."""
    return LIB.arange(x.shape[1]MORE)
''',
    "rows_of": '''
def rows_of(x):
    """The numbers of the sequences of x [batch, time, ...]."""
    return LIB.arange(x.shape[0]MORE)
''',
    "step_mask": '''
def step_mask(x, lengths):
    """True for the steps of x [batch, time, ...] that a sequence has, [batch, time]."""
    return steps_of(x) < lengths[:, None]
''',
    "masked": '''
def masked(x, lengths, value):
    """x [batch, time, ...] with another value after the end of each sequence."""
    mask = step_mask(x, lengths)
    return LIB.where(LIB.reshape(mask, (*mask.shape, *[1] * (x.ndim - 2))), x, value)
''',
    "at_steps": '''
def at_steps(x, steps):
    """The steps [batch, n] of x [batch, time, ...]."""
    return x[rows_of(x)[:, None], steps]
''',
    "at_step": '''
def at_step(x, step):
    """One step [batch] of each sequence of x [batch, time, ...]."""
    return x[rows_of(x), step]
''',
    "reversed_sequences": '''
def reversed_sequences(x, lengths):
    """x [batch, time, ...] with the steps of each sequence in reverse order."""
    steps = steps_of(x)
    return at_steps(x, LIB.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps))
''',
    "delayed": '''
def delayed(x, initial, steps):
    """x [batch, time, ...] so many steps ago; where a sequence does not reach that far, `initial` [batch, ...]."""
    before = LIB.broadcast_to(initial[:, None], (x.shape[0], min(steps, x.shape[1]), *x.shape[2:]))
    return LIB.concatenate([before, x[:, : max(x.shape[1] - steps, 0)]], 1)
''',
    "ahead": '''
def ahead(x, initial, lengths, steps):
    """x [batch, time, ...] so many steps ahead; where a sequence does not reach that far, `initial` [batch, ...]."""
    later = LIB.clip(steps_of(x) + steps, 0, x.shape[1] - 1)
    reaches = steps_of(x) + steps < lengths[:, None]
    return LIB.where(LIB.reshape(reaches, (*reaches.shape, *[1] * (x.ndim - 2))), x[:, later], initial[:, None])
''',
    "selected": '''
def selected(counts):
    """The steps [batch, time] at which `counts` is not 0, and how many there are in each sequence, [batch]."""
    total = LIB.ceil(LIB.cumsum(counts, 1) - 1e-4)
    steps = LIB.sum(total[:, None, :] <= steps_of(counts)[None, :, None], -1)
    return LIB.clip(steps, 0, counts.shape[1] - 1), LIB.sum(steps < counts.shape[1], -1)
''',
    "scattered": '''
def scattered(x, steps, like):
    """x [batch, n, ...] at these steps of a sequence [batch, time, ...], zeros elsewhere."""
    places = steps[:, None, :] == steps_of(like)[None, :, None]
    places = LIB.reshape(places, (*places.shape, *[1] * (x.ndim - 2)))
    return LIB.sum(LIB.where(places, x[:, None], 0), 2)
''',
    "range_lengths": '''
def range_lengths(lengths, begin, end):
    """The lengths of slices of sequences, whose end counts from the end if it is not positive."""
    return LIB.clip((LIB.clip(lengths, 0, end) if end > 0 else lengths + end) - begin, 0, None)
''',
    "region_maxima": '''
def region_maxima(x, regions, shape, scale):
    """The largest values in a grid of cells over each region, [batch, n, channels, *shape].

    x [batch, channels, height, width], regions [batch, n, 4]: x1, y1, x2, y2, inclusive, in pixels of x / scale.
    """
    def inside(first, last, cells, size):
        first, extent = first[:, None, None], LIB.where(last > first, last - first + 1, 1.0)[:, None, None]
        cell, place = LIB.arange(cellsMORE)[:, None], LIB.arange(sizeMORE)
        end = first + LIB.ceil((cell + 1) * extent / cells)
        return (place >= first + LIB.floor(cell * extent / cells)) & (place < end)

    def maxima(states, region):
        columns = inside(region[:, 0], region[:, 2], shape[1], x.shape[3])
        rows = inside(region[:, 1], region[:, 3], shape[0], x.shape[2])
        lines = LIB.amax(LIB.where(columns[:, None, None], x[:, :, :, None], -float("inf")), -1)
        cells = LIB.amax(LIB.where(rows[:, None, :, :, None], lines[:, :, None], -float("inf")), 3)
        return states, LIB.where(cells == -float("inf"), 0.0, cells)

    return recurrence(maxima, (), LIB.floor(regions * scale + 0.5))
''',
    "reshape_samples": '''
def reshape_samples(x, shape, lead=2):
    """x [batch, time, ...] with samples of another shape; `lead` dimensions stay."""
    return LIB.reshape(x, (*x.shape[:lead], *shape))
''',
}


_SCAN = '''
def recurrence(step, states, *sequences):
    """What step(states, *samples) -> (states, outputs) computes for each time of sequences [batch, time, ...]."""
    samples = [LIB.moveaxis(x, 1, 0) for x in sequences]
    _, outputs = SCAN(lambda states, samples: step(states, *samples), states, samples)
    return MAP(lambda x: LIB.moveaxis(x, 0, 1), outputs)
'''


def helpers(lib: str, more: str = "") -> dict[str, str]:
    """The functions, by their names; `more`: further arguments of ``arange``, with x."""
    return {name: text.replace("LIB", lib).replace("MORE", more) for name, text in _HELPERS.items()}


def scan(lib: str, function: str, tree_map: str) -> str:
    """The function `recurrence` of a library that has a scan."""
    return _SCAN.replace("LIB", lib).replace("SCAN", function).replace("MAP", tree_map)


__all__ = ["calls", "filling", "helpers", "scan"]
