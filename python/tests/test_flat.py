"""Flat messages: tables of protobuf classes, and fields that are read where they lie."""

import gc
import os
import pathlib
import tempfile

import conftest
import numpy
import pytest

import tollfree
from tollfree import flat

conftest.generate(pathlib.Path(__file__).parent / "array_protos", "*.proto")

import arrays_pb2 as pb  # noqa: E402

NAME = "tollfree.arrays.Everything"


@pytest.fixture(scope="module")
def table():
    return flat.table(pb.Everything)


def everything():
    return pb.Everything(
        name="all ü",
        data=b"\x07" * 5000,
        maybe=b"",
        chunks=[b"a", b"", b"x" * 5000],
        part=pb.Part(name="part", inner=pb.Part(name="inner", body=b"i" * 10)),
        parts=[pb.Part(name="0"), pb.Part(name="1", body=b"one")],
        blobs={"key": b"value", "other": b""},
        by_number={-7: pb.Part(name="seven"), 8: pb.Part()},
        second=pb.Part(name="second"),
        numbers=[1, -2, 2**31 - 1],
        sum=-(2**63),
    )


def test_fields_are_read_by_their_names(table):
    record = table.decode(NAME, everything().SerializeToString())
    assert record.name == "all ü" and record.sum == -(2**63) and record.type_name == NAME
    assert bytes(record.data) == b"\x07" * 5000 and record.data.readonly
    assert [bytes(each) for each in record.chunks] == [b"a", b"", b"x" * 5000]
    assert record.part.inner.name == "inner" and bytes(record.part.inner.body) == b"i" * 10 and record.part.inner.inner is None
    assert [part.name for part in record.parts] == ["0", "1"] and bytes(record.parts[-1].body) == b"one" and len(record.parts) == 2
    assert {key: bytes(value) for key, value in record.blobs.items()} == {"key": b"value", "other": b""}
    assert record.by_number[-7].name == "seven" and record.by_number[8].name == ""
    assert record.second.name == "second" and list(record.numbers) == [1, -2, 2**31 - 1]
    # What is absent counts as protobuf has it.
    assert record.third == "" and bytes(record.first) == b"" and record.next is None
    assert record.HasField("maybe") and not record.HasField("first") and not record.HasField("next")
    assert [name for name, _ in record.ListFields()][:3] == ["name", "data", "maybe"]
    assert pb.Everything.FromString(record.SerializeToString()) == everything()
    empty = table.decode(NAME, b"")
    assert len(empty.parts) == 0 and empty.blobs == {} and list(empty.numbers) == [] and not empty.HasField("parts")
    assert record["name"] == record.name and "parts" in dir(record) and repr(record) == f"<tollfree.flat.Record of {NAME}>"


def test_what_is_not_there_is_refused_by_name(table):
    record = table.decode(NAME, everything().SerializeToString())
    with pytest.raises(AttributeError, match=f'{NAME} has no field "absent"'):
        _ = record.absent
    with pytest.raises(AttributeError, match='no field "absent"'):
        record.HasField("absent")
    for index in (2, -3, 2**40):
        with pytest.raises(IndexError, match="2 elements"):
            _ = record.parts[index]
    with pytest.raises(ValueError, match="part of another message"):
        record.part.SerializeToString()
    with pytest.raises(KeyError, match='no message type "x.Y"'):
        table.verify("x.Y", b"")
    with pytest.raises(ValueError):
        table.decode(NAME, b"\x0a\xff")
    with pytest.raises(ValueError):
        flat.Table.load(b"no table")
    with pytest.raises(ValueError):
        flat.Table.compile(b"\xff")
    with pytest.raises(TypeError, match="is none"):
        flat.table(int)


def test_flat_messages_are_checked_before_they_are_read(table):
    good = bytes(table.decode(NAME, everything().SerializeToString()).flat())
    assert pb.Everything.FromString(table.verify(NAME, good).SerializeToString()) == everything()
    loaded = flat.Table.load(table.blob())
    assert loaded.fingerprint() == table.fingerprint() and loaded.types == table.types
    assert loaded.verify(NAME, good).parts[1].name == "1"
    with pytest.raises(ValueError):
        table.verify("tollfree.arrays.Part", good)
    refused = 0
    for at in range(0, len(good), 7):
        damaged = bytearray(good)
        damaged[at] ^= 0xA5
        try:
            record = table.verify(NAME, bytes(damaged))
        except ValueError:
            refused += 1
        else:
            # Sound, with other values: all of it can be read.
            record.SerializeToString()
            record.ListFields()
    assert refused > 20
    for cut in range(0, len(good), 11):
        with pytest.raises(ValueError):
            table.verify(NAME, good[:cut])


def test_a_flat_message_in_a_pool_is_read_there(table):
    with tempfile.TemporaryDirectory() as directory:
        pool = tollfree.Pool.create(f"shm://{directory}/pool.sock", 64 << 20)
        placed = pool.copy(table.decode(NAME, everything().SerializeToString()).flat())
        start = numpy.frombuffer(placed, numpy.uint8).ctypes.data
        array = numpy.frombuffer(table.verify(NAME, placed).data, numpy.uint8)
        assert start < array.ctypes.data < start + len(placed) and not array.flags.writeable
        part = table.verify(NAME, placed).part
        del placed
        gc.collect()
        # A field holds the message that it lies in.
        assert (array == 7).all() and part.name == "part" and part.inner.body.pooled and pool.used > 0
        child = os.fork()
        if child == 0:
            try:
                _ = part.name
            except RuntimeError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        del array, part
        assert pool.used == 0
        buffer = pool.buffer(4096)
        view = memoryview(buffer)
        with pytest.raises(BufferError):
            table.verify(NAME, buffer)
        del view, buffer
