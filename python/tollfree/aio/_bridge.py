"""A native loop under an asyncio loop: commands go out, events come in, and both sleep together."""

import contextlib
import contextvars
import logging
import os
import sys
import time

from tollfree import _events, _native, _process

_LOGGER = logging.getLogger("tollfree")

# For so long, in seconds, the interpreter's lock is kept while the rings are looked at: an answer of a server that is awake comes sooner
# than a task could be suspended and resumed. The native loop ends that sooner where it is not worth it.
HOLD = 20e-6
# A task that makes call after call without being suspended gives way to others so often, in seconds.
TURN_EVERY = 50e-6
# From a pause so long between two turns, in seconds, it follows that other tasks are at work: rings are not looked at on their time.
_BUSY = 30e-6
# After so many turns without an event everything goes to sleep.
_QUIET_TURNS_MAX = 8


class _Reader:
    """What an asyncio loop calls when a native loop's descriptor is readable.

    Nobody else has it: when it goes, the asyncio loop was closed, or the bridge has left it.
    """

    def __init__(self, bridge):
        self._bridge = bridge

    def __call__(self):
        self._bridge.is_readable()

    def __del__(self):
        self._bridge.lose_loop()


class Bridge:
    """See the module. Only the thread of the asyncio loop may use it, except for `later`."""

    def __init__(self, loop, native):
        # None, once the asyncio loop was closed or left.
        self.native = native
        self.loop = loop
        self.is_lost = False
        # While so many handlers run in threads, rings are not looked at while these need the interpreter's lock.
        self.thread_count = 0
        self._receivers = {}
        self._watchers = {}
        self._server = None
        self._is_scheduled = False
        self._timer = None
        self._timer_at = 0.0
        self._turned = 0.0
        self._quiet_turns = 0
        self._forks = _process.forks
        # Turns don't run in the context of the task that happened to cause them.
        self._context = contextvars.Context()
        loop.add_reader(native.fileno(), _Reader(self))
        self.touched()

    def check_process(self):
        """Raises RuntimeError in a child of fork: the bridge is its parent's."""
        if self._forks != _process.forks:
            raise RuntimeError("this process was forked, and the channel is its parent's: make another in the child")

    # Who gets events.

    def receive(self, number, receiver):
        """Has `receiver.take(kind, event)` called for the events of a call, until it is over."""
        self._receivers[number] = receiver

    def forget(self, number):
        self._receivers.pop(number, None)

    def watch(self, channel, watcher):
        """Has `watcher()` called when a channel changes; None: nobody any more."""
        if watcher is None:
            self._watchers.pop(channel, None)
        else:
            self._watchers[channel] = watcher

    def serve(self, server):
        """Has `server.take(kind, event)` called for events of no call that is known, and `server.lose()` at the end."""
        self._server = server

    def call_count(self):
        """Calls that are under way."""
        return len(self._receivers)

    # Turns.

    def touched(self):
        """Something was done with the native loop: it has a turn before the asyncio loop sleeps."""
        if not self._is_scheduled and not self.is_lost:
            self._is_scheduled = True
            self.loop.call_soon(self._turn, context=self._context)

    def is_readable(self):
        if not self._is_scheduled:
            self._turn()

    def look(self):
        """Looks for events at once: only if no other call waits for its own, since each look has a thread to itself."""
        if self.is_lost:
            return False
        hold = HOLD if len(self._receivers) == 1 and not self.thread_count else 0.0
        events = self.native.next(0.0, hold)
        if not events:
            return False
        self._quiet_turns = 0
        self._deliver(events)
        self.touched()
        return True

    def owes_turn(self):
        """Whether a task that was not suspended has to give way to others now."""
        return time.perf_counter() - self._turned > TURN_EVERY

    def _turn(self):
        self._is_scheduled = False
        if self.is_lost:
            return
        try:
            began = time.perf_counter()
            is_idle = began - self._turned < _BUSY and not self.thread_count
            events = self.native.next(0.0, HOLD if is_idle and self._quiet_turns else 0.0)
            if events:
                self._quiet_turns = 0
                self._deliver(events)
                self.touched()
            else:
                self._quiet_turns += 1
                self._rest(is_idle, began)
        except RuntimeError as error:
            if self._forks == _process.forks:
                raise
            # The asyncio loop is the parent's, too.
            _LOGGER.error("%s", error)
            self.lose_loop()
        self._turned = time.perf_counter()

    def _rest(self, is_idle, began):
        """Nothing has come: there is another turn, or all sleep."""
        if self._quiet_turns == 1:
            # A look at the rings follows.
            return self.touched()
        if self._quiet_turns < _QUIET_TURNS_MAX and (not is_idle or time.perf_counter() - began >= HOLD):
            # Other tasks are at work; or the native loop thinks that looking goes on to be worth it.
            return self.touched()
        self._quiet_turns = 0
        most = self.native.arm()
        if most is None:
            return self.touched()
        self._wake_in(most)

    def _wake_in(self, most):
        """Has a turn made after so many seconds, if they are not negative."""
        if self._timer is not None:
            if most >= 0.0 and abs(self._timer_at - self.loop.time() - most) < 0.001:
                return
            self._timer.cancel()
            self._timer = None
        if most >= 0.0:
            self._timer_at = self.loop.time() + most
            self._timer = self.loop.call_later(most, self._timed, context=self._context)

    def _timed(self):
        self._timer = None
        self.touched()

    def _deliver(self, events):
        receivers = self._receivers
        for event in events:
            kind = event[0]
            try:
                if _events.MESSAGE <= kind <= _events.HEADERS:
                    receiver = receivers.get(event[1])
                    if receiver is not None:
                        receiver.take(kind, event)
                elif kind == _events.CHANNEL:
                    watcher = self._watchers.get(event[1])
                    if watcher is not None:
                        watcher()
                elif self._server is not None:
                    self._server.take(kind, event)
            except Exception:
                # The events behind it are other calls'.
                _LOGGER.exception("an event of kind %s could not be handled", kind)

    def later(self, callback):
        """Has something done in the asyncio loop's thread, by any thread. Nothing is done when the loop was closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback, context=self._context)

    # The end.

    def close(self):
        """Leaves the asyncio loop, which goes on. What is in the native loop was closed before."""
        if not self.is_lost:
            # What was said last goes out.
            self.native.next(0.0)
            self.loop.remove_reader(self.native.fileno())
            self.lose_loop()

    def lose_loop(self):
        """The asyncio loop was closed, or left: calls that are under way have ended, and nobody is told any more."""
        if self.is_lost or sys.is_finalizing():
            return
        self.is_lost = True
        SHARED.lost(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.lose()
        watchers, self._watchers = self._watchers, {}
        server, self._server = self._server, None
        # Who still has this for what it was has no descriptors with it.
        native, self.native = self.native, None
        if self._forks == _process.forks:
            for channel in watchers:
                native.close_channel(channel)
            if server is not None:
                server.lose()
            native.next(0.0)
            native.close()
        else:
            # The parent's is never dropped in a child.
            _ABANDONED.append(native)


class _Shared:
    """Bridges for channels: those of an asyncio loop with the same limits have one together."""

    def __init__(self):
        self._bridges = {}

    def get(self, loop, *limits):
        key = (id(loop), *limits)
        bridge, count = self._bridges.get(key, (None, 0))
        if bridge is None:
            bridge = Bridge(loop, _native.Loop(False, *limits))
        self._bridges[key] = (bridge, count + 1)
        return bridge

    def leave(self, bridge):
        """A channel needs its bridge no more."""
        for key, (each, count) in list(self._bridges.items()):
            if each is bridge:
                self._bridges[key] = (bridge, count - 1)
                if count == 1:
                    bridge.close()

    def lost(self, bridge):
        """A bridge's asyncio loop was closed."""
        self._bridges = {key: kept for key, kept in self._bridges.items() if kept[0] is not bridge}

    def forked(self):
        """The parent's are never dropped in a child."""
        _ABANDONED.append(self._bridges)
        self._bridges = {}


_ABANDONED: list[object] = []
SHARED = _Shared()
os.register_at_fork(after_in_child=SHARED.forked)
