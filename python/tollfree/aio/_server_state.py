"""A server's call: what has come of it, its task, and how it ends."""

import grpc

from tollfree import _events, _metadata
from tollfree.aio._state import CallState


class ServerState(CallState):
    """See the module."""

    __slots__ = ("task", "is_half_closed", "is_cancelled", "_timer", "_calls")

    def __init__(self, bridge, served, calls):
        super().__init__(bridge)
        self.served = served
        # What handles it.
        self.task = None
        self.is_half_closed = False
        # The client has cancelled it, or its session is over, or its time.
        self.is_cancelled = False
        self._timer = None
        self._calls = calls
        calls.add(self)
        bridge.receive(served.number, self)

    def ends_after(self, seconds):
        """Ends the call with DEADLINE_EXCEEDED after so many seconds: the client's word is not waited for."""
        self._timer = self.bridge.loop.call_later(max(seconds, 0.0), self._is_late)

    def _is_late(self):
        if not self.is_over:
            self.answer_end(grpc.StatusCode.DEADLINE_EXCEEDED.value[0], words("the deadline has passed"))
            self._cancelled()

    def take_more(self, kind, event):
        if kind == _events.HALF_CLOSED:
            self.is_half_closed = True
        elif kind == _events.ENDED:
            self._ends()
            self._cancelled()

    def can_read(self):
        return bool(self.messages) or self.is_half_closed or self.is_over

    # The end.

    def answer_end(self, code, trailers, headers=None, data=None, compressed=False):
        """Ends the call with code and trailers, and what goes before them. Nothing where it is over."""
        if not self.is_over:
            self.served.answer(headers, data, compressed, code, trailers)
            self.bridge.touched()
            self._ends()

    def _ends(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.ends()
        self.wake()

    def _cancelled(self):
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()

    def abort(self, code, details):
        """Ends the call for the server's part: it stops."""
        self.answer_end(code.value[0], words(details))
        self._cancelled()

    def is_handled(self):
        """The call's task has ended."""
        self.task = None
        self._calls.discard(self)

    def lose(self):
        self.is_cancelled = True
        self.ends()
        self._calls.discard(self)
        super().lose()


def words(details):
    """A block of trailers with a status message."""
    return _metadata.pack([_metadata.message_pair(details)]) if details else b""
