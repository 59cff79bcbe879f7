"""The wire format of protocol buffers: what is written is read, and damage is an error with its position."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.formats.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    FormatError,
    Wire,
    buffers_of,
    field,
    message,
    signed,
    tag,
    varint,
)


def wire(data: bytes, trailing=None) -> Wire:
    return Wire(memoryview(data), 0, len(data), "file", trailing)


def written(*fields) -> bytes:
    """The bytes of a message with these fields, whose size has to be what it says."""
    body = message(fields)
    data = b"".join(buffers_of(body))
    assert len(body) == len(data)
    return data


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back_in_64_bits(number):
    ((place, kind, value),) = wire(written(tag(3, VARINT) + varint(number))).fields()
    assert (place, kind, signed(value)) == (3, VARINT, number)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_packed_numbers_come_back_at_once(numbers):
    values = wire(b"".join(map(varint, numbers))).varints()
    assert values.dtype == np.uint64 and values.tolist() == numbers


def test_fields_of_each_kind_come_back_in_order():
    data = written(
        tag(1, FIXED64) + struct.pack("<d", 0.1), tag(2, FIXED32) + struct.pack("<f", 0.5),
        field(tag(300, BYTES), "é".encode()),
    )
    (a, b, c) = wire(data).fields()
    assert (a[:2], a[2].word()) == ((1, FIXED64), 0.1)
    assert (b[:2], b[2].word()) == ((2, FIXED32), 0.5)
    assert (c[:2], c[2].text()) == ((300, BYTES), "é")


@pytest.mark.parametrize("size", [0, 5, 5000])
def test_a_message_has_the_size_of_its_fields_in_front(size):
    inner = message([field(tag(2, BYTES), bytes(size)), tag(3, VARINT) + varint(7)])
    ((_, _, read),) = wire(written(field(tag(1, BYTES), inner))).fields()
    (content, last) = read.fields()
    assert content[0] == 2 and content[2].bytes() == bytes(size) and last == (3, VARINT, 7)


def test_large_arrays_are_not_copied():
    array = memoryview(bytes(10_000))
    assert any(buffer is array for buffer in buffers_of(message([field(tag(1, BYTES), array), b""])))


@pytest.mark.parametrize(("data", "says"), [
    (b"\x00", "byte 0: a field has number 0"),
    (b"\x0b", "byte 0: field 1 has the unknown wire type 3"),
    (b"\x08", "byte 1: the file is cut off within a number"),
    (b"\x08\x80", "the file is cut off within a number"),
    (b"\x08" + b"\x80" * 11, "a number has more than ten bytes"),
    (b"\x0a\x05ab", "byte 0: field 1 says it has 5 bytes, but only 2 are left"),
    (b"\x09\x00", "field 1 says it has 8 bytes, but only 1 are left"),
])
def test_damaged_messages_are_errors_with_the_position(data, says):
    with pytest.raises(FormatError, match=f"file, {says}" if says.startswith("byte") else says):
        list(wire(data).fields())


@pytest.mark.parametrize("data", [b"\x80", b"\x01\x80", b"\x80" * 10 + b"\x01"])
def test_packed_numbers_that_are_cut_off_are_an_error(data):
    with pytest.raises(FormatError, match="a packed list of numbers is cut off"):
        wire(data).varints()


def test_text_that_is_not_utf_8_is_an_error():
    with pytest.raises(FormatError, match="text is not UTF-8"):
        wire(b"\xff").text()


def test_arrays_behind_a_message_are_taken_one_after_the_other():
    trailing = [2]
    message = Wire(memoryview(b"..abcde"), 0, 2, "file", trailing)
    assert (message.trailing_bytes(3), message.trailing_bytes(1)) == (b"abc", b"d")
    with pytest.raises(FormatError, match="2 bytes of values should follow the message, but only 1 are left"):
        message.trailing_bytes(2)


def test_unknown_fields_are_skipped_and_known_ones_have_their_wire_type():
    data = written(tag(1, VARINT) + varint(5), field(tag(2, BYTES), b"ab"), tag(9, FIXED32) + bytes(4))
    assert [number for number, _, _ in wire(data).fields({1: VARINT, 2: BYTES})] == [1, 2]
    with pytest.raises(FormatError, match="field 2 has wire type 2 instead of 0"):
        list(wire(data).fields({2: VARINT}))


def test_the_rest_of_a_message_is_that_of_its_size():
    data = varint(200) + bytes(200)
    rest = wire(data).rest(0)
    assert rest is not None and rest.bytes() == bytes(200)
    assert wire(data + b"x").rest(0) is None
