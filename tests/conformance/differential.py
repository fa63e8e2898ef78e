"""Compares the engine with upb, protobuf's own C library, on random messages.

usage: differential.py <descriptor set> <testee> [--seconds S] [--seed N]

A case is a message of the conformance suite with random fields, half of the time with its bytes changed at random. upb says
whether it is one; the testee must say the same, and what it gives back must be the same message for upb. With the testee that
is built with the feature `generated`, a message is decoded, verified, read by every getter, built anew by every setter of a
builder, and encoded.

The last line says how many cases ran. A difference is printed with its seed, and is a failure.
"""

import argparse
import random
import re
import struct
import subprocess
import sys
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from google.protobuf.internal import api_implementation
from google.protobuf.unknown_fields import UnknownFieldSet

TYPES = [
    "protobuf_test_messages.proto3.TestAllTypesProto3",
    "protobuf_test_messages.proto2.TestAllTypesProto2",
    "protobuf_test_messages.editions.proto3.TestAllTypesProto3",
    "protobuf_test_messages.editions.proto2.TestAllTypesProto2",
]
# Bytes that are boundaries in some place: of varints, of tags, of lengths, of UTF-8.
TELLING_BYTES = [0x00, 0x01, 0x07, 0x0B, 0x0C, 0x7F, 0x80, 0xC0, 0xED, 0xF4, 0xFE, 0xFF]
# A varint of ten bytes with bits beyond 64: upb and C++ leave them out, prost, Go and Tollfree refuse the message.
OVERLONG = re.compile(rb"[\x80-\xff]{9}[\x02-\x7f]")
DIFFERENCES_MAX = 10


class Testee:
    """The program under test: requests and answers after a length of four bytes, as the suite's runner speaks."""

    def __init__(self, path, descriptor_set, classes):
        self.process = subprocess.Popen([path, descriptor_set], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.request_class, self.response_class = classes

    def answer(self, name, payload):
        request = self.request_class(protobuf_payload=payload, requested_output_format=1, message_type=name)
        data = request.SerializeToString()
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        length = self.process.stdout.read(4)
        if len(length) < 4:
            raise SystemExit(f"the testee ended with {self.process.wait()} at a {name} of {payload.hex()}")
        (length,) = struct.unpack("<I", length)
        return self.response_class.FromString(self.process.stdout.read(length))


class Maker:
    """Fills messages with random fields."""

    def __init__(self, rng):
        self.rng = rng

    def integer(self, bits, signed):
        value = self.rng.choice([0, 1, self.rng.getrandbits(7), self.rng.getrandbits(bits), (1 << bits) - 1, 1 << (bits - 1)])
        value &= (1 << bits) - 1
        return value - (1 << bits) if signed and value >> (bits - 1) else value

    def text(self):
        letters = [chr(self.rng.choice([65, 0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF])) for _ in range(self.length())]
        return "".join(letters)

    def length(self):
        return self.rng.choice([0, 1, 3, 8, 15, 16, 17, 40, 130])

    def scalar(self, field):
        kind = field.type
        if kind in (field.TYPE_INT32, field.TYPE_SINT32, field.TYPE_SFIXED32):
            return self.integer(32, True)
        if kind in (field.TYPE_UINT32, field.TYPE_FIXED32):
            return self.integer(32, False)
        if kind in (field.TYPE_INT64, field.TYPE_SINT64, field.TYPE_SFIXED64):
            return self.integer(64, True)
        if kind in (field.TYPE_UINT64, field.TYPE_FIXED64):
            return self.integer(64, False)
        if kind == field.TYPE_BOOL:
            return self.rng.random() < 0.7
        if kind in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
            return self.rng.choice([0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf")])
        if kind == field.TYPE_STRING:
            return self.text()
        if kind == field.TYPE_BYTES:
            return self.rng.randbytes(self.length())
        return self.rng.choice(field.enum_type.values).number

    def fill(self, target, depth):
        fields = list(target.DESCRIPTOR.fields)
        for field in self.rng.sample(fields, min(len(fields), self.rng.choice([0, 1, 2, 4, 8, 24]))):
            self.put(target, field, depth)

    def put(self, target, field, depth):
        is_message = field.message_type is not None
        if is_message and depth == 0:
            return
        count = self.rng.choice([1, 1, 2, 5])
        if is_message and field.message_type.GetOptions().map_entry:
            entries, (key, value) = getattr(target, field.name), field.message_type.fields
            for _ in range(count):
                if value.message_type is not None:
                    self.fill(entries[self.scalar(key)], depth - 1)
                else:
                    entries[self.scalar(key)] = self.scalar(value)
        elif field.is_repeated:
            items = getattr(target, field.name)
            for _ in range(count):
                if is_message:
                    self.fill(items.add(), depth - 1)
                else:
                    items.append(self.scalar(field))
        elif is_message:
            member = getattr(target, field.name)
            member.SetInParent()
            self.fill(member, depth - 1)
        else:
            setattr(target, field.name, self.scalar(field))

    def changed(self, data, other):
        """`data` with some bytes changed, or with parts of `other`."""
        data = bytearray(data)
        for _ in range(self.rng.choice([1, 1, 2, 4])):
            at = self.rng.randrange(len(data) + 1)
            step = self.rng.randrange(6)
            if step == 0 and at < len(data):
                data[at] ^= 1 << self.rng.randrange(8)
            elif step == 1 and at < len(data):
                data[at] = self.rng.choice(TELLING_BYTES)
            elif step == 2:
                del data[at : at + self.rng.choice([1, 2, 9])]
            elif step == 3:
                data[at:at] = self.rng.randbytes(self.rng.choice([1, 2, 5]))
            elif step == 4:
                data += other
            else:
                begin = self.rng.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + 40]
        return bytes(data)


def case(number, rng, classes):
    """The name of a message's type, and bytes that may be one of it."""
    name = rng.choice(sorted(classes))
    maker = Maker(rng)
    made = []
    for _ in range(2):
        target = classes[name]()
        maker.fill(target, rng.choice([1, 2, 4]))
        made.append(target.SerializePartialToString())
    return name, maker.changed(*made) if number % 2 else made[0]


def keeps_entries(target):
    """Whether an entry of a map, somewhere in the message, has fields that the map knows nothing of. upb takes such entries
    for unknown fields; C++ and Tollfree take the entry and leave the fields out."""
    fields = target.DESCRIPTOR.fields_by_number
    for unknown in UnknownFieldSet(target):
        field = fields.get(unknown.field_number)
        entry = field.message_type if field else None
        if entry is not None and entry.GetOptions().map_entry and isinstance(unknown.data, bytes):
            try:
                rest = UnknownFieldSet(message_factory.GetMessageClass(entry).FromString(unknown.data))
            except message.DecodeError:
                continue
            # A value of a closed enum that has no name: the entry is unknown to all.
            if any((each.field_number, each.wire_type) != (2, 0) for each in rest):
                return True
    return any(keeps_entries(member) for member in members(target))


def members(target):
    for field, value in target.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields[1].message_type is not None:
                try:
                    yield from value.values()
                except UnicodeDecodeError:  # A key of proto2 may be no UTF-8, and this library shows none such.
                    pass
        elif field.is_repeated:
            yield from value
        else:
            yield value


def complaint(of, payload, answer):
    """What the testee says otherwise than upb, or nothing."""
    try:
        wanted = of.FromString(payload)
    except message.DecodeError as error:
        return None if answer.WhichOneof("result") == "parse_error" else f"upb refuses it ({error}), the testee does not"
    if answer.WhichOneof("result") == "parse_error" and "too long" in answer.parse_error and OVERLONG.search(payload):
        return None
    if answer.WhichOneof("result") != "protobuf_payload":
        return f"upb takes it, the testee says {answer}"
    try:
        got = of.FromString(answer.protobuf_payload)
    except message.DecodeError as error:
        return f"upb can't read what came back ({error}): {answer.protobuf_payload.hex()}"
    said, meant = (each.SerializePartialToString(deterministic=True) for each in (got, wanted))
    return None if said == meant or keeps_entries(wanted) else f"upb has {meant.hex()}, and of what came back {said.hex()}"


def main():
    parser = argparse.ArgumentParser(description="Compares the engine with upb on random messages.")
    parser.add_argument("descriptor_set")
    parser.add_argument("testee")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1, help="the number of the first case; each has its own")
    arguments = parser.parse_args()
    if api_implementation.Type() != "upb":
        raise SystemExit(f"protobuf's library for Python is here the one in {api_implementation.Type()}, not upb")

    with open(arguments.descriptor_set, "rb") as file:
        files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())

    def class_of(name):
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    classes = {name: class_of(name) for name in TYPES}
    testee = Testee(
        arguments.testee,
        arguments.descriptor_set,
        (class_of("conformance.ConformanceRequest"), class_of("conformance.ConformanceResponse")),
    )
    end, number, accepted, differences = time.monotonic() + arguments.seconds, arguments.seed, 0, 0
    while time.monotonic() < end and differences < DIFFERENCES_MAX:
        name, payload = case(number, random.Random(number), classes)
        answer = testee.answer(name, payload)
        accepted += answer.WhichOneof("result") == "protobuf_payload"
        found = complaint(classes[name], payload, answer)
        if found:
            differences += 1
            print(f"--seed {number}: a {name} of {payload.hex()}: {found}", file=sys.stderr)
        number += 1
    cases = number - arguments.seed
    print(f"upb: {cases} cases, {accepted} of them accepted, {differences} differences")
    if differences or accepted * 4 < cases:
        raise SystemExit(1)


main()
