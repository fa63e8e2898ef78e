"""Arrays in messages: fields of type `bytes` that go by reference, and views of messages that came."""

import secrets
from collections.abc import Mapping, Sequence

import grpc

from tollfree._native import Buffer, Pieces, Shape

# What stands in a field's place while protobuf has the message, with the number of the array behind it. Nobody else knows it.
_SECRET = secrets.token_bytes(16)
_MARK_LEN = len(_SECRET) + 4

_shapes: dict = {}
_kinds: dict = {}


def message(request, /, **arrays):
    """A message with arrays in its fields of type `bytes`, to be given to a stub, or returned by a handler, in the message's place.

    Arrays that lie in a pool are neither copied nor encoded: they go by reference to other members of the pool.

    Args:
      request: a protobuf message. It is not changed.
      arrays: by the names of fields. For a field of type `bytes`: a `tollfree.Buffer`, or any other object that speaks the buffer
        protocol, which is copied. For a repeated one: a list of these, which stand behind what the message has. For a map of them: a dict.
        For a field whose type is a message: a dict of that message's fields; for a repeated one: a dict of such dicts by index; for a map:
        by key.

    Raises:
      ValueError: the message has no such field, element, or two of the arrays are of the same oneof.
      TypeError: the field's type takes no array of this kind.
      BufferError: a buffer can still be written through an array of it; or an object is not contiguous.
    """
    descriptor = getattr(type(request), "DESCRIPTOR", None)
    if descriptor is None or not hasattr(request, "SerializeToString"):
        raise TypeError(
            f"tollfree.message takes a protobuf message, not {type(request).__name__}: a buffer that is a whole message is sent as it is"
        )
    marked = type(request)()
    marked.CopyFrom(request)
    buffers = []
    _mark(marked, arrays, buffers)
    return _shape(descriptor).put_in(marked.SerializeToString(), _SECRET, buffers)


def placed(request):
    """What a message is sent as that protobuf does not encode; None: it is no such message."""
    if isinstance(request, (Pieces, Buffer)):
        return request
    if isinstance(request, View):
        root = request._View__root
        return Pieces(request.ToMessage().SerializeToString()) if root is None else root
    return None


def decoded(deserialize, data):
    """What a program is given of a message that came."""
    if type(data) is bytes or type(deserialize) is Viewing:
        return deserialize(data)
    return deserialize(bytes(data))


def _mark(marked, arrays, buffers):
    """Puts marks into a message where arrays belong."""
    for name, given in arrays.items():
        field = marked.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"{marked.DESCRIPTOR.full_name} has no field {name!r}")
        if field.type not in (field.TYPE_BYTES, field.TYPE_MESSAGE, field.TYPE_GROUP):
            raise TypeError(f"{field.full_name} is not of type bytes: it takes no array")
        try:
            if _is_map(field):
                _mark_map(getattr(marked, name), field, _as(dict, given, field), buffers)
            elif field.type == field.TYPE_BYTES and _is_repeated(field):
                getattr(marked, name).extend(_marks(_as((list, tuple), given, field), buffers))
            elif field.type == field.TYPE_BYTES:
                setattr(marked, name, *_marks((given,), buffers))
            elif _is_repeated(field):
                elements = getattr(marked, name)
                for index, fields in _as(dict, given, field).items():
                    _mark(elements[index], _as(dict, fields, field), buffers)
            else:
                _mark(getattr(marked, name), _as(dict, given, field), buffers)
        except IndexError:
            raise ValueError(f"{field.full_name} has no element of one of the indices {list(given)}") from None


def _mark_map(entries, field, given, buffers):
    value = field.message_type.fields_by_name["value"]
    for key, array in given.items():
        if value.type == value.TYPE_BYTES:
            entries[key] = next(_marks((array,), buffers))
        elif value.type == value.TYPE_MESSAGE:
            _mark(entries[key], _as(dict, array, field), buffers)
        else:
            raise TypeError(f"the values of {field.full_name} are not of type bytes: they take no array")


def _as(kinds, given, field):
    if not isinstance(given, kinds):
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TypeError(f"{field.full_name} takes a {names} here, not {type(given).__name__}")
    return given


def _marks(arrays, buffers):
    for array in arrays:
        buffers.append(array.freeze() if isinstance(array, Buffer) else Buffer.copy(array))
        yield _SECRET + (len(buffers) - 1).to_bytes(4, "little")


def _is_repeated(field):
    known = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if known is None else known


def _is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _shape(descriptor):
    """Where the fields of type `bytes` of a message type are."""
    shape = _shapes.get(descriptor)
    if shape is None:
        found = [descriptor]
        for each in found:
            found += [field.message_type for field in each.fields if field.message_type is not None and field.message_type not in found]
        # Types without such fields, also within others, are passed over.
        have = {each for each in found if any(field.type == field.TYPE_BYTES for field in each.fields)}
        while more := {each for each in found if each not in have and any(field.message_type in have for field in each.fields)}:
            have |= more
        kept = [descriptor, *(each for each in found if each in have and each is not descriptor)]
        index = {each: at for at, each in enumerate(kept)}
        types = [
            [
                (field.number, index.get(field.message_type), field.type == field.TYPE_GROUP, _key_wire(field))
                for field in each.fields
                if field.type == field.TYPE_BYTES or field.message_type in index
            ]
            for each in kept
        ]
        shape = _shapes[descriptor] = Shape(types)
    return shape


def _key_wire(field):
    """The wire type of a map's keys; None: the field is no map."""
    if not _is_map(field):
        return None
    key = field.message_type.fields_by_name["key"]
    if key.type == key.TYPE_STRING:
        return 2
    if key.type in (key.TYPE_FIXED64, key.TYPE_SFIXED64):
        return 1
    return 5 if key.type in (key.TYPE_FIXED32, key.TYPE_SFIXED32) else 0


class Viewing:
    """A deserializer that gives views."""

    def __init__(self, kind):
        self._kind = kind
        self._shape = None if kind is None else _shape(kind.DESCRIPTOR)

    def __call__(self, data):
        pieces = data if type(data) is Pieces else Pieces(data)
        if self._kind is None:
            return pieces.buffer()
        taken = self._shape.take_out(pieces, _SECRET)
        # Of what is malformed, protobuf says what is wrong.
        rest, buffers = (bytes(pieces), []) if taken is None else taken
        return View(self._kind.FromString(rest), buffers, pieces)


def viewing(deserialize, method):
    """The deserializer of views for one of a protobuf class."""
    if deserialize is None or type(deserialize) is Viewing:
        return deserialize or Viewing(None)
    kind = getattr(deserialize, "__self__", None)
    if not hasattr(kind, "DESCRIPTOR") or not hasattr(kind, "FromString"):
        method = method.decode() if isinstance(method, bytes) else method
        raise TypeError(f"{method} can't give views: its messages are not deserialized by a protobuf class's FromString")
    return Viewing(kind)


class View:
    """A message that came, read-only, whose fields of type `bytes` are buffers: long ones show the memory in which they came.

    All fields have their names. A field whose type is a message is a view too, and repeated fields and maps of messages and `bytes` are
    sequences and mappings of them.
    The memory is held as long as the view, a part of it or an array made of its buffers.
    """

    __slots__ = ("__message", "__taken", "__root")

    def __init__(self, message, taken, root):
        object.__setattr__(self, "_View__message", message)
        object.__setattr__(self, "_View__taken", taken)
        object.__setattr__(self, "_View__root", root)

    @property
    def DESCRIPTOR(self):
        return self.__message.DESCRIPTOR

    def __getattr__(self, name):
        value = getattr(self.__message, name)
        field = self.__message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise AttributeError(f"a view of {self.__message.DESCRIPTOR.full_name} has no attribute {name!r}: use ToMessage()")
        show = _shown_by(field)
        return value if show is None else show(value, self.__taken)

    def __setattr__(self, name, value):
        raise AttributeError("a view is read-only: use ToMessage()")

    def __dir__(self):
        return [*super().__dir__(), *self.__message.DESCRIPTOR.fields_by_name]

    def HasField(self, field_name):
        return self.__message.HasField(field_name)

    def WhichOneof(self, oneof_group):
        return self.__message.WhichOneof(oneof_group)

    def ToMessage(self):
        """The protobuf message, with copies of all bytes."""
        message = type(self.__message)()
        message.CopyFrom(self.__message)
        _restore(message, self.__taken)
        return message

    def __repr__(self):
        return f"<tollfree.View of {self.__message.DESCRIPTOR.full_name}>"


def _part(message, taken):
    """A view of a message within another. As a whole it is sent as a copy."""
    return View(message, taken, None)


def _number(value):
    """The number in a mark; None: it is none."""
    if len(value) != _MARK_LEN or not value.startswith(_SECRET):
        return None
    return int.from_bytes(value[len(_SECRET) :], "little")


def _buffer(value, taken):
    number = _number(value)
    return Buffer.copy(value) if number is None else taken[number]


def _restore(message, taken):
    """Puts copies of what was taken out back into a message."""
    for field, value in message.ListFields():
        is_bytes = field.type == field.TYPE_BYTES
        if _is_map(field):
            kind = field.message_type.fields_by_name["value"]
            # A map must not change while it is gone through.
            for key in list(value):
                if kind.type == kind.TYPE_BYTES:
                    if _number(value[key]) is not None:
                        value[key] = bytes(_buffer(value[key], taken))
                elif kind.type == kind.TYPE_MESSAGE:
                    _restore(value[key], taken)
        elif is_bytes and not field.is_extension:
            if _is_repeated(field):
                value[:] = [each if _number(each) is None else bytes(_buffer(each, taken)) for each in value]
            elif _number(value) is not None:
                setattr(message, field.name, bytes(_buffer(value, taken)))
        elif field.message_type is not None:
            for each in value if _is_repeated(field) else (value,):
                _restore(each, taken)


def _shown_by(field):
    """How a view shows a field; None: as protobuf does."""
    known = _kinds.get(field, field)
    if known is not field:
        return known
    value = field.message_type.fields_by_name["value"] if _is_map(field) else field
    show = _buffer if value.type == value.TYPE_BYTES else _part if value.message_type is not None else None
    if show is not None and _is_map(field):
        show = _mapping_of(show)
    elif show is not None and _is_repeated(field):
        show = _sequence_of(show)
    _kinds[field] = show
    return show


def _sequence_of(show):
    return lambda values, taken: _Elements(values, show, taken)


def _mapping_of(show):
    return lambda values, taken: _Entries(values, show, taken)


class _Elements(Sequence):
    """A repeated field of a view."""

    def __init__(self, values, show, taken):
        self._values, self._show, self._taken = values, show, taken

    def __len__(self):
        return len(self._values)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._show(value, self._taken) for value in self._values[index]]
        return self._show(self._values[index], self._taken)


class _Entries(Mapping):
    """A map of a view."""

    def __init__(self, values, show, taken):
        self._values, self._show, self._taken = values, show, taken

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)

    def __getitem__(self, key):
        # A map of messages makes what is asked for.
        if key not in self._values:
            raise KeyError(key)
        return self._show(self._values[key], self._taken)


def views(target):
    """Has messages come as views (`tollfree.View`), whose fields of type `bytes` are not copied.

    For a channel: another that shares its connection, whose methods answer with views; interceptors go around it. For a method of a
    servicer, as a decorator: its requests are views.
    """
    if isinstance(target, grpc.Channel):
        return _Views(target)
    if isinstance(target, grpc.aio.Channel):
        return _AioViews(target)
    if not callable(target):
        raise TypeError(f"views takes a channel, or a method of a servicer, not {type(target).__name__}")
    target._tollfree_views = True
    return target


_deserializers: dict = {}


def request_deserializer(handler, path):
    """What makes a handler's requests of bytes."""
    behavior = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    if not getattr(behavior, "_tollfree_views", False):
        return handler.request_deserializer or _same
    known = _deserializers.get(handler.request_deserializer)
    if known is None:
        known = _deserializers[handler.request_deserializer] = viewing(handler.request_deserializer, path)
    return known


def _same(data):
    return data


class _Methods:
    """The methods of a channel, with views for answers."""

    def __init__(self, channel):
        self._channel = channel

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._channel.unary_unary(method, request_serializer, viewing(response_deserializer, method), _registered_method)

    def unary_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._channel.unary_stream(method, request_serializer, viewing(response_deserializer, method), _registered_method)

    def stream_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._channel.stream_unary(method, request_serializer, viewing(response_deserializer, method), _registered_method)

    def stream_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._channel.stream_stream(method, request_serializer, viewing(response_deserializer, method), _registered_method)


class _Views(_Methods, grpc.Channel):
    def subscribe(self, callback, try_to_connect=False):
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback):
        self._channel.unsubscribe(callback)

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()
        return False


class _AioViews(_Methods, grpc.aio.Channel):
    async def __aenter__(self):
        return self

    async def __aexit__(self, exc_type, exc_val, exc_tb):
        await self.close()

    async def close(self, grace=None):
        await self._channel.close(grace)

    def get_state(self, try_to_connect=False):
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state):
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self):
        await self._channel.channel_ready()
