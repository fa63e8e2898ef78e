"""Synchronous servers: a `grpc.Server` for generated servicers as they are."""

import logging
import secrets
import threading
import time

import grpc

from tollfree import _attach, _events, _handling, _native, _options, _process

_LOGGER = logging.getLogger("tollfree")

# For so long, in seconds, the serving thread keeps the interpreter's lock while it looks for the next call of a handler that runs inline.
_HOLD = 20e-6


def server(
    thread_pool,
    handlers=None,
    interceptors=None,
    options=None,
    maximum_concurrent_rpcs=None,
    compression=None,
    pool=None,
):
    """A server to which services can be added.

    Args:
      thread_pool: a `concurrent.futures.ThreadPoolExecutor` for handlers; those marked `inline` don't need it.
      handlers: `grpc.GenericRpcHandler`s.
      interceptors: `grpc.ServerInterceptor`s, the first outermost.
      options: pairs `(name, value)` by grpcio's names. A name that says nothing over shared memory is logged.
      maximum_concurrent_rpcs: calls at once; another is answered RESOURCE_EXHAUSTED. None: no limit.
      compression: a `grpc.Compression` for all answers, or None.
      pool: a `tollfree.Pool`, by which long messages go to clients that are members too; or None.

    `add_insecure_port` takes `shm:///path/of.sock` and `shm-abstract:name`. One program may serve TCP beside by a `grpc.server` with the
    same servicers.
    """
    return Server(thread_pool, handlers, interceptors, options, maximum_concurrent_rpcs, compression, pool)


def inline(handler):
    """Marks a unary method of a servicer whose handler returns at once: it runs in the serving thread, not in the pool.

    While it runs, no other call is taken: it must not wait for anything.
    """
    handler._tollfree_inline = True
    return handler


class _State:
    """A server's way from made to stopped. All of it is changed under its lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.is_started = False
        self.is_stopping = False
        self.stop_at = None
        self.has_stopped = threading.Event()


class Server(grpc.Server):
    """See `server`."""

    def __init__(self, thread_pool, handlers, interceptors, options, maximum_concurrent_rpcs, compression, pool):
        given = _options.Options(options, "server")
        compression = given.compression(compression)
        self._compression = None if compression is grpc.Compression.NoCompression else compression
        self._receive_len_max = given.length("grpc.max_receive_message_length", _options.RECEIVE_LEN_MAX)
        self._send_len_max = given.length("grpc.max_send_message_length", None)
        self._pool = thread_pool
        self._loop = _native.Loop(
            True,
            _process.AGENT,
            0xFFFFFFFF if self._receive_len_max is None else self._receive_len_max,
            given.length("grpc.max_metadata_size", None),
            given.number("grpc.max_concurrent_streams"),
            pool,
        )
        self._methods = _handling.Methods(handlers, interceptors)
        self._calls = _handling.Calls(maximum_concurrent_rpcs)
        self._state = _State()
        self._listeners = []
        self._sessions = {}
        # By session, or by a key of their own until they are tried again. Changed under the lock: the thread that serves may hear of a
        # session before the thread that attaches has noted it.
        self._attachments = {}
        self._attaching = threading.Lock()
        self._thread = None
        self._is_inline = False
        # The same for all of its sessions with gateways.
        self._identity = secrets.token_bytes(16)

    # What is served where.

    def add_generic_rpc_handlers(self, generic_rpc_handlers):
        self._methods.add_generic(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name, method_handlers):
        self._methods.add_registered(service_name, method_handlers)

    def add_insecure_port(self, address):
        address = address.decode() if isinstance(address, bytes) else address
        if not address.startswith(("shm:", "shm-abstract:")):
            raise ValueError(
                f"address {address!r}: Tollfree serves shm:///path and shm-abstract:name; "
                "serve sockets by a grpc.server with the same servicers"
            )
        self._listeners.append(self._loop.listen(address))
        # As grpcio says of a Unix socket.
        return 1

    def add_secure_port(self, address, server_credentials):
        raise ValueError("clients of shared memory are known by the kernel: use add_insecure_port, and context.auth_context() in handlers")

    def attach(self, address, group="", timeout=10.0):
        """Has the gateway at an address call this server: its clients' calls come here until the server stops, also after the gateway was
        restarted.

        Args:
          address: the gateway's socket for backends, `shm:///path`.
          group: the group of backends to join; empty where the gateway has one only.
          timeout: how long to wait until the gateway has accepted, in seconds.

        Raises:
          ConnectionRefusedError: the gateway has refused for good; the message says why.
          TimeoutError: the gateway was not there in time. The server goes on trying.
        """
        known = threading.Event()
        attachment = _attach.Attachment(self._loop, address, group, self._methods.services(), self._identity, known)
        with self._attaching:
            self._attachments[attachment.begin()] = attachment
        self._begin()
        known.wait(timeout)
        attachment.check(timeout)

    # Serving.

    def start(self):
        with self._state.lock:
            if self._state.is_started:
                raise ValueError("Cannot start already-started server!")
            self._state.is_started = True
        self._begin()

    def _begin(self):
        with self._state.lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._serve, name="tollfree-server", daemon=True)
            self._thread.start()

    def _serve(self):
        try:
            while not self._is_done():
                for event in self._loop.next(self._patience(), _HOLD if self._is_inline else 0.0):
                    self._take(event)
        except Exception:
            _LOGGER.critical("a server has failed, and ends", exc_info=True)
        finally:
            self._loop.close()
            self._calls.close()
            self._state.has_stopped.set()

    def _patience(self):
        """How long to wait for events, in seconds; None: until there is one."""
        with self._attaching:
            times = [attachment.due_in() for attachment in self._attachments.values()]
        if self._state.stop_at is not None:
            times.append(max(self._state.stop_at - time.monotonic(), 0.0))
        return min((each for each in times if each is not None), default=None)

    def _take(self, event):
        kind = event[0]
        if kind == _events.UNARY or kind == _events.CALL:
            self._is_inline = _handling.begin(self, event)
        elif kind == _events.ENDED:
            self._calls.cancelled(event[1])
        elif kind == _events.ACCEPTED:
            self._sessions[event[1]] = None
            if self._state.is_stopping:
                self._loop.drain(event[1])
        elif kind == _events.ATTACHED:
            self._sessions[event[1]] = None
            with self._attaching:
                self._attachments[event[1]].attached()
        elif kind == _events.CLOSED:
            self._sessions.pop(event[1], None)
            self._again(event[1], event[2], False)
        elif kind == _events.NOT_ATTACHED:
            self._again(event[1], event[2], event[3])
        elif kind == _events.REFUSED:
            _LOGGER.warning("a client was refused: %s", event[1])

    def _again(self, session, words, is_final):
        with self._attaching:
            attachment = self._attachments.pop(session, None)
            if attachment is not None and not self._state.is_stopping:
                waiting = attachment.lost(words, is_final)
                if waiting is not None:
                    self._attachments[waiting] = attachment

    def _peer(self, session):
        """Process, user and group of a session's client, as the kernel says."""
        known = self._sessions.get(session)
        if known is None:
            known = self._loop.peer(session)
            if session in self._sessions:
                self._sessions[session] = known
        return known

    def payloads(self):
        """What became of long messages, by name: how many went and came by reference, and why others did not."""
        return dict(self._loop.payloads())

    # The end.

    def stop(self, grace):
        state = self._state
        with state.lock:
            at = time.monotonic() + (grace or 0.0)
            state.stop_at = at if state.stop_at is None else min(state.stop_at, at)
            is_first, state.is_stopping = not state.is_stopping, True
        if is_first:
            for listener in self._listeners:
                self._loop.unlisten(listener)
            for session in list(self._sessions):
                self._loop.drain(session)
            if self._thread is None:
                self._loop.close()
                state.has_stopped.set()
        self._calls.when_none(self._loop.wake)
        self._loop.wake()
        if not grace:
            state.has_stopped.wait()
        return state.has_stopped

    def _is_done(self):
        with self._attaching:
            for key, attachment in list(self._attachments.items()):
                again = attachment.retry()
                if again is not None:
                    del self._attachments[key]
                    self._attachments[again] = attachment
        state = self._state
        if not state.is_stopping:
            return False
        if self._calls.count() > 0:
            if time.monotonic() < state.stop_at:
                return False
            self._calls.cancel_all()
        for session in list(self._sessions):
            self._loop.close_session(session)
        # What was said last goes out.
        self._loop.next(0.0)
        return True

    def wait_for_termination(self, timeout=None):
        """Waits until the server has stopped. True: it has not within so many seconds."""
        return not self._state.has_stopped.wait(timeout)

    def __del__(self):
        loop = getattr(self, "_loop", None)
        if loop is not None and self._thread is None:
            loop.close()
