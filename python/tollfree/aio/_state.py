"""What has come for a call and waits to be read, and who waits for more: the same for both ends."""

import asyncio
import collections

from tollfree import _events

# Messages that wait to be read, at most, before a call is paused: as many, or as many bytes together.
_KEPT_COUNT = 64
_KEPT_LEN = 256 << 10
# Messages, or bytes of them, that a writer may have under way before it waits.
_UNSENT_COUNT = 16
_UNSENT_LEN = 256 << 10


class CallState:
    """See the module. Only the thread of its asyncio loop may use it."""

    __slots__ = ("bridge", "served", "messages", "is_over", "_len", "_is_paused", "_unsent_count", "_unsent_len", "_waiters", "__weakref__")

    def __init__(self, bridge):
        self.bridge = bridge
        # The native call, once it has begun and until it is over: it keeps the native loop's descriptors open.
        self.served = None
        self.messages = collections.deque()
        self.is_over = False
        self._len = 0
        self._is_paused = False
        self._unsent_count = 0
        self._unsent_len = 0
        self._waiters = []

    # What comes.

    def take(self, kind, event):
        """Something has happened to the call."""
        if kind == _events.MESSAGE:
            self._take_message(event[2])
        elif kind == _events.SENT:
            self._unsent_count = self._unsent_len = 0
        else:
            self.take_more(kind, event)
        if self._waiters:
            self._wake()

    def take_more(self, kind, event):
        """What is not the same for both ends."""
        raise NotImplementedError

    def _take_message(self, message):
        self.messages.append(message)
        self._len += len(message[0] if type(message) is tuple else message)
        if not self._is_paused and (len(self.messages) >= _KEPT_COUNT or self._len >= _KEPT_LEN) and not self.is_over:
            self._is_paused = True
            self.served.pause()

    def next_message(self):
        """The next message, if there is one."""
        if not self.messages:
            return None
        message = self.messages.popleft()
        self._len -= len(message[0] if type(message) is tuple else message)
        if self._is_paused and len(self.messages) <= _KEPT_COUNT // 2 and self._len <= _KEPT_LEN // 2:
            self._is_paused = False
            if not self.is_over:
                self.served.resume()
                self.bridge.touched()
        return message

    # What goes.

    def said(self, length):
        """A message of such a length was said."""
        self._unsent_count += 1
        self._unsent_len += length
        self.bridge.touched()

    def may_say(self):
        """Whether a writer may go on: what was said before is on its way, but for a little."""
        return self.is_over or (self._unsent_count < _UNSENT_COUNT and self._unsent_len < _UNSENT_LEN)

    def ends(self):
        """The call is over here: no event follows."""
        self.is_over = True
        self._unsent_count = self._unsent_len = 0
        served, self.served = self.served, None
        if served is not None:
            self.bridge.forget(served.number)

    # Who waits.

    def _wake(self):
        """Has every waiter go on whose condition is met."""
        for waiter in list(self._waiters):
            future, is_so = waiter
            if not future.done() and is_so():
                future.set_result(None)

    def wake(self):
        """Something has changed that is none of the call's events."""
        if self._waiters:
            self._wake()

    async def until(self, is_so):
        """Waits until something is so. Gives way to other tasks now and then, also where it is so already."""
        if is_so() or (self.bridge.look() and is_so()):
            if self.bridge.owes_turn():
                await asyncio.sleep(0)
            return
        while not is_so():
            waiter = (self.bridge.loop.create_future(), is_so)
            self._waiters.append(waiter)
            try:
                await waiter[0]
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def lose(self):
        """The asyncio loop was closed: nobody can be woken."""
        self._waiters.clear()
