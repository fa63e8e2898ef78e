"""Servers for asyncio: a `grpc.aio.Server` for generated servicers as they are."""

import asyncio
import contextlib
import contextvars
import logging
import secrets
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import grpc

from tollfree import _attach, _events, _native, _options, _process
from tollfree.aio import _serving
from tollfree.aio._bridge import Bridge
from tollfree.aio._context import Context
from tollfree.aio._server_state import ServerState, words

_LOGGER = logging.getLogger("tollfree")


def server(
    migration_thread_pool: futures.Executor | None = None,
    handlers: Sequence[grpc.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] | None = None,
    options: Sequence[tuple[str, Any]] | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: grpc.Compression | None = None,
    pool: _native.Pool | None = None,
) -> "Server":
    """A server for asyncio, to which services can be added.

    Args:
      migration_thread_pool: a `concurrent.futures.ThreadPoolExecutor` for handlers that are no coroutines; None: the asyncio loop's own.
      handlers: `grpc.GenericRpcHandler`s.
      interceptors: `grpc.aio.ServerInterceptor`s, the first outermost.
      options: pairs `(name, value)` by grpcio's names. A name that says nothing over shared memory is logged.
      maximum_concurrent_rpcs: calls at once; another is answered RESOURCE_EXHAUSTED. None: no limit.
      compression: a `grpc.Compression` for all answers, or None.
      pool: a `tollfree.Pool`, by which long messages go to clients that are members too; or None.

    `add_insecure_port` takes `shm:///path/of.sock` and `shm-abstract:name`. The server belongs to the asyncio loop in which it is started,
    and only that loop's thread may use it; it ends when that loop is closed.
    """
    return Server(migration_thread_pool, handlers, interceptors, options, maximum_concurrent_rpcs, compression, pool)


class Server(grpc.aio.Server):
    """See `server`."""

    def __init__(self, migration_thread_pool, handlers, interceptors, options, maximum_concurrent_rpcs, compression, pool):
        if maximum_concurrent_rpcs is not None and maximum_concurrent_rpcs <= 0:
            raise ValueError("maximum_concurrent_rpcs should be a positive integer")
        given = _options.Options(options, "server")
        compression = given.compression(compression)
        self.compression = None if compression is grpc.Compression.NoCompression else compression
        self.receive_len_max = given.length("grpc.max_receive_message_length", _options.RECEIVE_LEN_MAX)
        self.send_len_max = given.length("grpc.max_send_message_length", None)
        self.pool = migration_thread_pool
        self.methods = _serving.Methods(handlers, interceptors)
        self._native = _native.Loop(
            False,
            _process.AGENT,
            # A message's length is said in four bytes.
            0xFFFFFFFF if self.receive_len_max is None else self.receive_len_max,
            given.length("grpc.max_metadata_size", None),
            given.number("grpc.max_concurrent_streams"),
            pool,
        )
        self._call_count_max = maximum_concurrent_rpcs
        self._calls = set()
        self._listeners = []
        self._sessions = {}
        self._attachments = {}
        # The same for all of its sessions with gateways.
        self._identity = secrets.token_bytes(16)
        self._bridge = None
        # From the first stop on: when what is left of calls ends, by the asyncio loop's clock.
        self._stop_at = None
        self._stopping = None
        self._has_stopped = False
        self._waiters = []

    # What is served where.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self.methods.add_generic(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: dict[str, grpc.RpcMethodHandler]) -> None:
        self.methods.add_registered(service_name, method_handlers)

    def add_insecure_port(self, address: str) -> int:
        """Listens at an address. Clients wait until the server is started.

        Raises:
          ValueError: the address is none of shared memory.
          grpc.aio.UsageError: the server was stopped.
          OSError: nothing can listen there; the message says why.
        """
        address = address.decode() if isinstance(address, bytes) else address
        if not address.startswith(("shm:", "shm-abstract:")):
            raise ValueError(
                f"address {address!r}: Tollfree serves shm:///path and shm-abstract:name; "
                "serve sockets by a grpc.aio.server with the same servicers"
            )
        if self._has_stopped:
            raise grpc.aio.UsageError("Server already stopped.")
        self._listeners.append(self._native.listen(address))
        if self._bridge is not None:
            self._bridge.touched()
        # As grpcio says of a Unix socket.
        return 1

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Refused: the kernel tells who clients are.

        Raises:
          ValueError: always.
        """
        raise ValueError("clients of shared memory are known by the kernel: use add_insecure_port, and context.auth_context() in handlers")

    # Serving.

    async def start(self) -> None:
        """Serves from now on, in the running asyncio loop.

        Raises:
          grpc.aio.UsageError: the server was stopped.
        """
        if self._has_stopped or self._stop_at is not None:
            raise grpc.aio.UsageError("Server not in ready state")
        if self._bridge is None:
            self._bridge = Bridge(asyncio.get_running_loop(), self._native)
            self._bridge.serve(self)

    async def attach(self, address: str, group: str = "", timeout: float | None = 10.0) -> None:
        """Has the gateway at an address call this server, which is started thereby: its clients' calls come here until the server stops,
        also after the gateway was restarted.

        Args:
          address: the gateway's socket for backends, `shm:///path`.
          group: the group of backends to join; empty where the gateway has one only.
          timeout: how long to wait until the gateway has accepted, in seconds.

        Raises:
          ConnectionRefusedError: the gateway has refused for good; the message says why.
          TimeoutError: the gateway was not there in time. The server goes on trying.
        """
        await self.start()
        known = asyncio.Event()
        attachment = _attach.Attachment(self._native, address, group, self.methods.services(), self._identity, known)
        self._attachments[attachment.begin()] = attachment
        self._bridge.touched()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(known.wait(), timeout)
        attachment.check(timeout)

    def _lose_attachment(self, session, words, is_final):
        attachment = self._attachments.pop(session, None)
        if attachment is not None and self._stop_at is None and attachment.lost(words, is_final) is not None:
            self._bridge.loop.call_later(attachment.due_in() or 0.0, self._attach_again, attachment)

    def _attach_again(self, attachment):
        if self._has_stopped or self._stop_at is not None:
            return
        session = attachment.retry()
        if isinstance(session, int):
            self._attachments[session] = attachment
            self._bridge.touched()
        else:
            # It is not time yet, or nothing could be opened.
            self._bridge.loop.call_later(max(attachment.due_in() or 0.0, 0.001), self._attach_again, attachment)

    def take(self, kind, event):
        """Something has happened to no call that is known."""
        if kind == _events.CALL:
            self._begin(event)
        elif kind == _events.ACCEPTED:
            self._sessions[event[1]] = None
            if self._stop_at is not None:
                self._native.drain(event[1])
        elif kind == _events.ATTACHED:
            self._sessions[event[1]] = None
            self._attachments[event[1]].attached()
        elif kind == _events.CLOSED:
            self._sessions.pop(event[1], None)
            self._lose_attachment(event[1], event[2], False)
        elif kind == _events.NOT_ATTACHED:
            self._lose_attachment(event[1], event[2], event[3])
        elif kind == _events.REFUSED:
            _LOGGER.warning("a client was refused: %s", event[1])

    def _begin(self, event):
        _, served, path, block, deadline_ns, session = event
        if self._call_count_max is not None and len(self._calls) >= self._call_count_max:
            return served.answer(None, None, False, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], words("Concurrent RPC limit exceeded!"))
        state = ServerState(self._bridge, served, self._calls)
        context = Context(self, state, path, block, deadline_ns, session)
        if deadline_ns is not None:
            state.ends_after((deadline_ns - _native.now_ns()) / 1e9)
        # A handler begins in an empty context, as grpcio has it.
        state.task = self._bridge.loop.create_task(_serving.handle(self, context), context=contextvars.Context())
        state.task.add_done_callback(lambda task: self._is_handled(task, state, context))

    def _is_handled(self, task, state, context):
        state.is_handled()
        if not state.is_over:
            # The task was cancelled before it began.
            state.abort(grpc.StatusCode.CANCELLED, "the handler was cancelled")
        if not task.cancelled() and task.exception() is not None:
            _LOGGER.error("a call of %s has failed outside its handler", context.path, exc_info=task.exception())
        context.is_handled()
        if self._stop_at is not None:
            self._tell_waiters()

    def peer(self, session):
        """Process, user and group of a session's client, as the kernel says."""
        known = self._sessions.get(session)
        if known is None and not self._has_stopped:
            known = self._native.peer(session)
            if session in self._sessions:
                self._sessions[session] = known
        return known

    def payloads(self) -> dict[str, int]:
        """What became of long messages, by name: how many went and came by reference, and why others did not."""
        return {} if self._native is None else dict(self._native.payloads())

    # The end.

    async def stop(self, grace: float | None) -> None:
        """Takes no new calls, and waits until those under way are over, for `grace` seconds at most; None: at once.

        What is left then ends with UNAVAILABLE, and its handlers are cancelled and waited for. Of several stops the shortest grace counts.
        """
        if self._has_stopped:
            return
        if self._bridge is None:
            # It was never started.
            return self._over()
        loop = self._bridge.loop
        at = loop.time() + (grace or 0.0)
        self._stop_at = at if self._stop_at is None else min(self._stop_at, at)
        if self._stopping is None:
            self._stopping = loop.create_task(self._stop())
        else:
            self._tell_waiters()
        # Should this task be cancelled, the server stops all the same.
        await asyncio.shield(self._stopping)

    async def _stop(self):
        native, bridge = self._native, self._bridge
        for listener in self._listeners:
            native.unlisten(listener)
        for session in list(self._sessions):
            native.drain(session)
        bridge.touched()
        while self._calls and bridge.loop.time() < self._stop_at:
            await self._change(self._stop_at - bridge.loop.time())
        for state in list(self._calls):
            state.abort(grpc.StatusCode.UNAVAILABLE, "the server has stopped")
        while self._calls:
            await self._change(None)
        bridge.close()

    async def _change(self, timeout):
        """Waits until a call is over, the grace is shorter or the server has stopped."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=timeout)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _tell_waiters(self):
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def lose(self):
        """The asyncio loop was closed, or left by a server that stops."""
        for session in list(self._sessions):
            self._native.close_session(session)
        for listener in self._listeners:
            self._native.unlisten(listener)
        loop = self._bridge.loop
        self._over(not loop.is_closed())

    def _over(self, tells=True):
        self._has_stopped = True
        self._sessions.clear()
        # Who still has the server has no descriptors with it.
        native, self._native = self._native, None
        native.close()
        if tells:
            self._tell_waiters()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Waits until the server has stopped. True: it has not within so many seconds."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not self._has_stopped:
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                return True
            await self._change(left)
        return False
