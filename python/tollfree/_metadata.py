"""Metadata, statuses and compression: between grpcio's shapes and blocks."""

import collections
import gzip
import urllib.parse
import zlib

import grpc

from tollfree import _native

Metadatum = collections.namedtuple("Metadatum", ("key", "value"))

CODES = {code.value[0]: code for code in grpc.StatusCode}
OK = grpc.StatusCode.OK

_ENCODING = "grpc-encoding"
_NAMES = {grpc.Compression.Deflate: "deflate", grpc.Compression.Gzip: "gzip"}
# What an application does not see of an answer's metadata: gRPC's own.
_OWN = frozenset(("grpc-message", "grpc-status", _ENCODING, "grpc-accept-encoding", "content-type"))


def code_of(number):
    """The status code of a number; UNKNOWN for one that is none."""
    return CODES.get(number, grpc.StatusCode.UNKNOWN)


def pack(pairs):
    """A block of pairs; what can't be sent raises ValueError or TypeError, with its name."""
    return _native.pack(pairs)


def unpack(block):
    """All pairs of a block."""
    return _native.unpack(block) if block else []


def visible(pairs):
    """The pairs that an application sees."""
    return tuple(Metadatum(name, value) for name, value in pairs if name not in _OWN)


def find(pairs, wanted):
    """The last value of a name, or None."""
    found = None
    for name, value in pairs:
        if name == wanted:
            found = value
    return found


def details_of(pairs):
    """The status message of trailers."""
    text = find(pairs, "grpc-message")
    return urllib.parse.unquote(text, errors="replace") if isinstance(text, str) else ""


# All that is printable, but the sign of an escape.
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def message_pair(details):
    """`grpc-message` of a status message, escaped as gRPC does."""
    if isinstance(details, bytes):
        details = details.decode("utf-8", "replace")
    return ("grpc-message", urllib.parse.quote(details, safe=_PLAIN, errors="replace"))


def encoding_pairs(compression):
    """What metadata say of a compression."""
    name = _NAMES.get(compression)
    return [(_ENCODING, name)] if name else []


def compress(data, compression):
    """A message's bytes compressed, and whether they are."""
    if compression == grpc.Compression.Gzip:
        return gzip.compress(bytes(data), 6), True
    if compression == grpc.Compression.Deflate:
        return zlib.compress(bytes(data)), True
    return data, False


class Undecodable(Exception):
    """A message that can't be decompressed: a status code and its message."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code, self.details = code, details


def decompress(message, pairs, limit):
    """The bytes of a message as it came: bytes or pieces of them, or a tuple of either where they are compressed as metadata say."""
    if type(message) is not tuple:
        return message
    data = bytes(message[0])
    encoding = find(pairs, _ENCODING)
    window = {"gzip": 31, "deflate": 15}.get(encoding)
    if window is None:
        raise Undecodable(grpc.StatusCode.UNIMPLEMENTED, f"a message is compressed by {encoding!r}, which is not known here")
    inflater = zlib.decompressobj(window)
    try:
        inflated = inflater.decompress(data, (limit or 0) + 1 if limit is not None else 0)
    except zlib.error as error:
        raise Undecodable(grpc.StatusCode.INTERNAL, f"a compressed message is damaged: {error}") from None
    if limit is not None and len(inflated) > limit:
        raise Undecodable(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a message is longer than {limit} bytes when it is decompressed")
    if not inflater.eof:
        raise Undecodable(grpc.StatusCode.INTERNAL, "a compressed message is cut short")
    return inflated
