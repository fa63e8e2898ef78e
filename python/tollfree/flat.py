"""Flat messages: read where they lie, by tables of their types.

A table is made of protobuf classes, or loaded. `verify` checks a flat message once; then its fields are attributes, read when they are
asked for, and fields of type `bytes` are buffers in the message's own memory.
"""

from google.protobuf import descriptor_pb2

from tollfree._native import Elements, Record, Table

__all__ = ["Elements", "Record", "Table", "table"]


def table(*kinds):
    """A table with the message types of protobuf classes, and all that these are made of.

    Raises:
      TypeError: one is no protobuf class.
      ValueError: a type has something that a table can't hold; the message names it.
    """
    files = {}
    for kind in kinds:
        descriptor = getattr(kind, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "file"):
            raise TypeError(f"a table is made of protobuf classes, and {kind!r} is none")
        _add(descriptor.file, files)
    return Table.compile(descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString())


def _add(file, files):
    """Adds a file behind those that it imports."""
    if file.name in files:
        return
    for imported in file.dependencies:
        _add(imported, files)
    described = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(described)
    files[file.name] = described
