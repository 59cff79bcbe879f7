"""The container of CNTK's files: values round-trip, CNTK's files are reproduced, damage is always reported."""

import contextlib
import random
import time
from pathlib import Path

import numpy as np
import pytest

from cntkjax.formats import dictionary
from cntkjax.formats.dictionary import AxisRecord, FormatError, SizeT, StoredShape, decode, encode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FILES = sorted(GOLDEN.glob("models/*.model")) + sorted(GOLDEN.glob("checkpoints/*.model*"))

VALUES = [
    None,
    True,
    -5,
    2**62,
    SizeT(2**64 - 3),
    np.float32(0.1),
    0.1,
    float("inf"),
    "",
    "naïve ✓",
    StoredShape(()),
    StoredShape((3, -3, -1)),
    AxisRecord(0, "staticAxisIdx=0", True),
    AxisRecord(-2, "staticAxisIdx=-2", True),
    AxisRecord(2**31 - 1, "defaultBatchAxis", False),
    [],
    [1, "x", [None]],
    {},
    {"a": {"b": [SizeT(1)]}},
]
ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.float64([[1.5], [-2.0]]),
    np.float16([1, 65504]),
    np.int8([-128, 127]),
    np.int16([-32768, 0, 300, 32767]),
    np.float32(3.0).reshape(()),
    np.zeros((2, 0), np.float32),
    np.asfortranarray(np.arange(6.0).reshape(3, 2)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_type_of_value_round_trips(value):
    decoded = decode(encode({"v": value}))["v"]
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays_round_trip_bit_for_bit(array):
    decoded = decode(encode({"v": array}))["v"]
    assert decoded.dtype == array.dtype
    assert decoded.shape == array.shape
    np.testing.assert_array_equal(decoded, array)


def test_bytes_are_those_that_cntk_wrote():
    """The entry of an int16 constant of CNTK 2.7: column-major shape, zigzag varints."""
    entry = b"\x08\x02\x10\x0bj\x0e\x08\x06\x1a\x03\x0a\x01\x03:\x05\x0a\x03\x02\x04\x05"
    file = b"\x08\x02\x12" + bytes([len(entry) + 5]) + b"\x0a\x01v\x12" + bytes([len(entry)]) + entry
    assert encode({"v": np.int16([1, 2, -3])}) == file
    assert decode(file)["v"].tolist() == [1, 2, -3]


def test_files_of_cntk_are_reencoded_byte_for_byte():
    for file in FILES:
        content = file.read_bytes()
        assert encode(decode(content, str(file))) == content, file


def sample() -> bytes:
    nested = {"v": [1.5, np.float32(2)]}
    return encode({"s": "text", "n": SizeT(300), "d": nested, "a": np.arange(4.0), "h": StoredShape((7, 9))})


def test_truncated_files_raise_errors_with_file_and_position():
    data = sample()
    entries = 0
    for size in range(len(data)):
        try:
            entries = len(decode(data[:size], "net.model"))  # cut between two entries: a smaller dictionary
        except FormatError as error:
            assert str(error).startswith("net.model")
    assert entries == 4


def test_damaged_bytes_only_raise_format_errors():
    data, rng = sample(), random.Random(1)
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        with contextlib.suppress(FormatError):
            decode(bytes(broken))


def message(number: int, body: bytes) -> bytes:
    size, head = len(body), b""
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + head + bytes([size]) + body


def entry(kind: int, payload: bytes) -> bytes:
    return b"\x08\x02" + message(2, message(1, b"k") + message(2, b"\x08\x02\x10" + bytes([kind]) + payload))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"not a model at all", "is a text file, and no model"),
        (entry(1, message(8, b"x")), "its type is 1, but a value of type 6"),
        (entry(6, b""), "its type is 6, but nothing"),
        (entry(6, message(8, b"\xff\xfe")), "not UTF-8"),
        (entry(6, b"\x42\xff\xff\xff\xff\x0f"), "4294967295 bytes, but only 0"),
        (entry(1, message(3, b"x")), "wire type 2 instead of 0"),
        (entry(11, message(13, b"\x08\x63")), "data type 99"),
        (entry(11, message(13, b"\x08\x01\x10\x01")), "sparse"),
        (entry(11, message(13, b"\x08\x01" + message(3, message(1, b"\xff\xff\x0f")))), r"\(262143,\) has 0 values"),
        (entry(11, message(13, b"\x08\x01" + message(4, message(1, b"abc")))), "cut off"),
        (entry(7, message(9, message(1, b"\x05" * 40))), "40 dimensions"),
        (entry(7, message(9, message(1, b"\x85"))), "cut off"),
        (entry(1, b"\x18\x01") + entry(1, b"\x18\x01"), "'k' twice"),
        (b"\x08\x09", "version 9"),
        (b"\x08" + b"\xff" * 11, "more than ten bytes"),
    ],
)
def test_each_kind_of_damage_is_named(data, reason):
    with pytest.raises(FormatError, match=reason):
        decode(data, "x.model")
    with pytest.raises(RuntimeError):  # CNTK's type for it
        decode(data)


def test_deep_nesting_in_a_file_is_rejected_quickly():
    body = b"\x08\x02\x10\x01\x18\x01"
    for _ in range(20_000):
        body = b"\x08\x02\x10\x09" + message(11, message(1, body))
    start = time.perf_counter()
    with pytest.raises(FormatError, match="nested deeper than 64"):
        decode(b"\x08\x02" + message(2, message(1, b"k") + message(2, body)))
    assert time.perf_counter() - start < 1


def test_unsupported_values_are_rejected_with_their_path():
    with pytest.raises(TypeError, match=r"state\.list\[1\] is of type bytes"):
        encode({"state": {"list": [1, b"x"]}})
    with pytest.raises(TypeError, match="array of int32"):
        encode({"a": np.zeros(2, np.int32)})
    with pytest.raises(TypeError, match="key 1 of type int"):
        encode({"a": {1: 2}})
    for value in 2**63, SizeT(-1):
        with pytest.raises(ValueError, match=r"state\.a\[1\]\.b is .* 64 bits"):
            encode({"state": {"a": [1, {"b": value}]}})
    cycle: dict = {}
    cycle["self"] = cycle
    with pytest.raises(ValueError, match="contain itself"):
        encode(cycle)


def test_unknown_fields_are_skipped():
    extra = b"\x98\x06\x05"  # field 99, a varint
    assert decode(encode({"a": 1}) + extra) == {"a": 1}


def test_a_large_array_is_read_without_copying_it():
    data = encode({"a": np.zeros(1000, np.float32)})
    assert not decode(data)["a"].flags.owndata


# ---- files of more than 2 GB
BEHIND = {"a": np.float32([[1, 2], [3, 4]]), "n": 7, "b": [np.array(5.0), np.float16([6, 7])]}


def test_values_of_a_large_file_follow_the_message(monkeypatch):
    monkeypatch.setattr(dictionary, "LARGEST", 10)
    data = encode(BEHIND)
    size = int.from_bytes(data[4:8], "little")
    assert data[:4] == b"ktnc"
    values = np.float32([1, 2, 3, 4]), np.float64(5), np.float16([6, 7])
    assert data[8 + size :] == b"".join(v.tobytes() for v in values)
    decoded = decode(data)
    np.testing.assert_array_equal(decoded["a"], BEHIND["a"])
    np.testing.assert_array_equal(decoded["b"][0], 5)
    assert (decoded["n"], decoded["b"][1].dtype, decoded["b"][1].tolist()) == (7, np.float16, [6, 7])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-1], "4 bytes of values should follow the message, but only 3 are left"),
        (lambda data: data + b"x", "1 bytes that belong to no array"),
        (lambda data: data[:4] + b"\xff\xff\xff\x7f" + data[8:], "the message says it has 2147483647 bytes"),
    ],
)
def test_damage_of_large_files_is_named(monkeypatch, damage, reason):
    monkeypatch.setattr(dictionary, "LARGEST", 10)
    with pytest.raises(FormatError, match=reason):
        decode(damage(encode(BEHIND)))
