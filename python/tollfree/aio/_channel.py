"""Channels for asyncio: `grpc.aio.Channel` for generated stubs as they are."""

import asyncio
import logging
import weakref
from collections.abc import Sequence
from typing import Any

import grpc
from grpc.aio import UsageError

from tollfree import _options, _process
from tollfree._native import Pool
from tollfree.aio import _methods
from tollfree.aio._bridge import SHARED

_LOGGER = logging.getLogger("tollfree")

_STATES = (
    grpc.ChannelConnectivity.IDLE,
    grpc.ChannelConnectivity.CONNECTING,
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
)
_READY = 2


def insecure_channel(
    target: str,
    options: Sequence[tuple[str, Any]] | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
    pool: Pool | None = None,
) -> "Channel":
    """A channel to a server on this host, for asyncio.

    Args:
      target: `shm:///path/of.sock` or `shm-abstract:name`; several with commas between make a channel over several servers.
      options: pairs `(name, value)` by grpcio's names. A name that says nothing over shared memory is logged.
      compression: a `grpc.Compression` for all calls, or None.
      interceptors: client interceptors of `grpc.aio`, the first outermost. An interceptor runs for each kind of call whose class it is of.
      pool: a `tollfree.Pool`, by which long messages go to servers that are members too; or None.

    Raises:
      ValueError: the target, an option or an interceptor can't be used; the message says why.

    The channel belongs to the asyncio loop in which it is used first, and only that loop's thread may use it. When that loop is closed,
    calls that are under way end. A child of fork needs a channel of its own.
    """
    return Channel(target, options, compression, interceptors, pool)


class Channel(grpc.aio.Channel):
    """See `insecure_channel`."""

    def __init__(self, target, options, compression, interceptors, pool):
        self._targets = _options.targets_of(target)
        given = _options.Options(options, "channel")
        compression = given.compression(compression)
        self.compression = None if compression is grpc.Compression.NoCompression else compression
        self.send_len_max = given.length("grpc.max_send_message_length", None)
        self.receive_len_max = given.length("grpc.max_receive_message_length", _options.RECEIVE_LEN_MAX)
        agents = (given.text("grpc.primary_user_agent"), _process.AGENT, given.text("grpc.secondary_user_agent"))
        # A message's length is said in four bytes.
        receive_len_max = 0xFFFFFFFF if self.receive_len_max is None else self.receive_len_max
        metadata_len_max = given.length("grpc.max_metadata_size", None)
        self._limits = (" ".join(agent for agent in agents if agent), receive_len_max, metadata_len_max, None, pool)
        self.config = _options.ServiceConfig(given.text("grpc.service_config"), given.are_retries_on())
        self._interceptors = _methods.sorted_by_kind(interceptors)
        # Calls under way, and tasks of interceptors.
        self.calls = set()
        self.chains = set()
        self._watchers = []
        self._is_closed = False
        self._bridge = self._number = None
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        # What is wrong with an address is told here, and not at the first call.
        self.open()

    def open(self):
        """The bridge to the running asyncio loop, and the channel's number there."""
        bridge = self._bridge
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if bridge is not None:
                # A child of fork has no running loop.
                bridge.check_process()
            raise RuntimeError("no event loop runs in this thread: the channel is used in that of its own loop") from None
        if self._is_closed:
            raise UsageError("Channel is closed.")
        if bridge is not None:
            if bridge.loop is loop:
                return bridge, self._number
            bridge.check_process()
            raise UsageError("the channel belongs to another event loop, in which it was used first: make another in this loop")
        bridge = SHARED.get(loop, *self._limits)
        try:
            self._number = bridge.native.open(self._targets, *self.config.of_channel())
        except BaseException:
            SHARED.leave(bridge)
            raise
        self._bridge = bridge
        # The bridge does not keep a channel that nobody has.
        changed = weakref.WeakMethod(self._changed)
        bridge.watch(self._number, lambda: (changed() or _nothing)())
        bridge.touched()
        return bridge, self._number

    # Methods.

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._multicallable(_methods.UnaryUnary, method, request_serializer, response_deserializer)

    def unary_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._multicallable(_methods.UnaryStream, method, request_serializer, response_deserializer)

    def stream_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._multicallable(_methods.StreamUnary, method, request_serializer, response_deserializer)

    def stream_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._multicallable(_methods.StreamStream, method, request_serializer, response_deserializer)

    def _multicallable(self, kind, method, serialize, deserialize):
        return kind(self, method, serialize, deserialize, self._interceptors[kind])

    # Connectivity.

    def is_ready(self) -> bool:
        return not self._is_closed and not self._bridge.is_lost and self._bridge.native.state(self._number) == _READY

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if self._is_closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        bridge, number = self.open()
        state = bridge.native.state(number)
        if try_to_connect and state == 0:
            bridge.native.connect(number)
            bridge.touched()
        return grpc.ChannelConnectivity.SHUTDOWN if state is None else _STATES[state]

    def _changed(self):
        for call in list(self.calls):
            call.wake()
        self._tell_watchers()

    def _tell_watchers(self):
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        while self.get_state() is last_observed_state:
            if last_observed_state is grpc.ChannelConnectivity.SHUTDOWN:
                raise UsageError("Channel is closed.")
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            try:
                await watcher
            finally:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

    async def channel_ready(self) -> None:
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    def payloads(self) -> dict[str, int]:
        """What became of long messages, by name: how many went and came by reference, and why others did not.

        Channels with the same pool and limits count together.
        """
        return dict(self.open()[0].native.payloads())

    # The end.

    async def __aenter__(self) -> "Channel":
        return self

    async def __aexit__(self, exc_type, exc_val, exc_tb) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Closes the channel. Calls that are under way may go on for `grace` seconds; what is left of them then is cancelled."""
        if grace is not None and grace < 0:
            raise ValueError(f"grace has to be 0 or more seconds, and is {grace}")
        if self._is_closed:
            return
        self._is_closed = True
        if grace and (self.calls or self.chains):
            await self._wait_for_calls(grace)
        for chain in list(self.chains):
            chain.cancel()
        for call in list(self.calls):
            call.cancel("the channel was closed")
        self._leave()
        self._tell_watchers()

    async def _wait_for_calls(self, grace):
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def ended(_=None):
            if not self.calls and not self.chains and not over.done():
                over.set_result(None)

        # What is over has left the sets before.
        for call in list(self.calls):
            call.when_over(ended)
        for chain in list(self.chains):
            chain.add_done_callback(ended)
        await asyncio.wait((over,), timeout=grace)

    def _leave(self):
        bridge, self._bridge = self._bridge, None
        if bridge is not None and not bridge.is_lost:
            bridge.watch(self._number, None)
            bridge.native.close_channel(self._number)
            bridge.touched()
            SHARED.leave(bridge)

    def __del__(self):
        bridge = getattr(self, "_bridge", None)
        if bridge is not None and not bridge.is_lost:
            number = self._number
            bridge.later(lambda: _abandoned(bridge, number))


def _nothing():
    pass


def _abandoned(bridge, number):
    """A channel went without being closed; its calls were over, since they keep it."""
    if not bridge.is_lost:
        bridge.watch(number, None)
        bridge.native.close_channel(number)
        SHARED.leave(bridge)
