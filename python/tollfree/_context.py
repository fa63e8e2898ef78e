"""What a handler of a synchronous server is given beside the request."""

import logging
import threading

import grpc

from tollfree import _metadata, _native

_LOGGER = logging.getLogger("tollfree")

# What `auth_context` says of the peer: the kernel knows who it is.
_SECURITY = {"transport_security_type": [b"local"], "security_level": [b"TSI_PRIVACY_AND_INTEGRITY"]}


class Abort(Exception):
    """A handler has ended its call by `abort`."""


class Context(grpc.ServicerContext):
    """A `grpc.ServicerContext`. Any thread may use it."""

    def __init__(self, server, served, path, block, deadline_ns, session):
        self._server = server
        self._served = served
        self._path = path
        self._block = block
        self._deadline_ns = deadline_ns
        self._session = session
        self._metadata = None
        self._headers = None
        self._are_headers_sent = False
        self._trailers = ()
        self._code = None
        self._details = None
        self._compression = server._compression
        self._is_next_plain = False
        self._lock = threading.Lock()
        self._callbacks = []
        self._is_over = False

    # What came.

    def _pairs(self):
        if self._metadata is None:
            self._metadata = _metadata.unpack(self._block)
        return self._metadata

    def invocation_metadata(self):
        return _metadata.visible(self._pairs())

    def time_remaining(self):
        if self._deadline_ns is None:
            return None
        return max(self._deadline_ns - _native.now_ns(), 0) / 1e9

    def peer(self):
        """`unix:` with process id, user id and group id of the caller, as the kernel says."""
        peer = self._server._peer(self._session)
        return "unix:" if peer is None else f"unix:pid={peer[0]},uid={peer[1]},gid={peer[2]}"

    def peer_identities(self):
        peer = self._server._peer(self._session)
        return None if peer is None else [str(peer[1]).encode()]

    def peer_identity_key(self):
        return "uid"

    def auth_context(self):
        peer = self._server._peer(self._session)
        if peer is None:
            return dict(_SECURITY)
        of_peer = {name: [str(value).encode()] for name, value in zip(("pid", "uid", "gid"), peer, strict=True)}
        return {**_SECURITY, **of_peer}

    # How it stands.

    def is_active(self):
        return not self._is_over and not self._served.is_over()

    def cancel(self):
        self._served.cancel(grpc.StatusCode.CANCELLED.value[0])
        self._ends()

    def add_callback(self, callback):
        with self._lock:
            if self._is_over:
                return False
            is_first = not self._callbacks
            self._callbacks.append(callback)
        if is_first and not self._served.tell_end():
            self._ends()
        return True

    def _ends(self):
        """The call is over, however it ended."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _LOGGER.exception("a callback of a call of %s has failed", self._path)

    # The answer.

    def set_compression(self, compression):
        if self._are_headers_sent:
            raise ValueError("compression is said with the headers, and these were sent")
        self._compression = None if compression is grpc.Compression.NoCompression else compression

    def disable_next_message_compression(self):
        self._is_next_plain = True

    def send_initial_metadata(self, initial_metadata):
        with self._lock:
            if self._are_headers_sent:
                raise ValueError("Initial metadata no longer allowed!")
            self._headers = tuple(initial_metadata)
        self._served.answer(self._take_headers())

    def _take_headers(self):
        """The block of the answer's headers, the first time; then None."""
        if self._are_headers_sent:
            return None
        self._are_headers_sent = True
        pairs = list(self._headers or ())
        if self._compression is not None:
            pairs += _metadata.encoding_pairs(self._compression)
        return _metadata.pack(pairs) if pairs else b""

    def _compressed(self, data):
        """A message's bytes as they go out, and whether they are compressed."""
        is_plain, self._is_next_plain = self._is_next_plain, False
        if self._compression is None or is_plain:
            return data, False
        return _metadata.compress(data, self._compression)

    def set_trailing_metadata(self, trailing_metadata):
        self._trailers = tuple(trailing_metadata)

    def trailing_metadata(self):
        return self._trailers

    def set_code(self, code):
        self._code = code

    def code(self):
        return self._code

    def set_details(self, details):
        self._details = details

    def details(self):
        return self._details

    def abort(self, code, details):
        if code is grpc.StatusCode.OK or code == 0:
            _LOGGER.error("abort() called with StatusCode.OK; returning UNKNOWN")
            code, details = grpc.StatusCode.UNKNOWN, ""
        self._code, self._details = code, details
        raise Abort()

    def abort_with_status(self, status):
        self._trailers = tuple(status.trailing_metadata or ())
        self.abort(status.code, status.details)

    def _end(self, code, details):
        """Code and block of trailers of the end."""
        code = code if isinstance(code, int) else code.value[0]
        if code == 0 and not details and not self._trailers:
            return 0, b""
        try:
            pairs = ([_metadata.message_pair(details)] if details else []) + list(self._trailers)
            return code, _metadata.pack(pairs)
        except (TypeError, ValueError) as error:
            _LOGGER.error("trailing metadata of a call of %s can't be sent: %s", self._path, error)
            return grpc.StatusCode.INTERNAL.value[0], _metadata.pack([_metadata.message_pair(str(error))])
