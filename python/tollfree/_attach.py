"""A server's sessions with a gateway: attaching, and attaching again."""

import logging
import random
import time

_LOGGER = logging.getLogger("tollfree")

# Pauses between attempts, in seconds: a gateway that restarts is back soon, one that is gone is asked once a second.
_FIRST, _MOST = 0.005, 1.0


class Attachment:
    """One session with a gateway, and what follows when it ends.

    `known` is an event that is set once the gateway has accepted or refused: a thread's or asyncio's.
    """

    def __init__(self, loop, address, group, services, identity, known):
        self._loop, self._address = loop, address
        self._group, self._services, self._identity = group, services, identity
        self._is_known = known
        self._refused = None
        self._words = ""
        self._failures = 0
        self._due = None

    def begin(self):
        """Begins to attach: the session's number."""
        return self._loop.attach(self._address, self._identity, 0, self._group, self._services)

    def attached(self):
        self._failures = 0
        self._is_known.set()

    def lost(self, words, is_final):
        """It is not attached, or not any more. A key to be kept under until it is tried again, or None where it was refused for good."""
        if is_final and not self._is_known.is_set():
            self._refused = words
            self._is_known.set()
            return None
        if words != self._words:
            _LOGGER.warning("no calls come from the gateway at %s, and the server attaches again: %s", self._address, words)
        self._words = words
        pause = min(_FIRST * 2**self._failures, _MOST) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 16)
        self._due = time.monotonic() + pause
        return ("again", id(self))

    def due_in(self):
        """When it is tried again, in seconds; None: it is under way."""
        return None if self._due is None else max(self._due - time.monotonic(), 0.0)

    def retry(self):
        """Tries again if it is time: the session's number. None: it is not."""
        if self._due is None or self._due > time.monotonic():
            return None
        self._due = None
        try:
            return self.begin()
        except OSError as error:
            return self.lost(str(error), False)

    def check(self, timeout):
        """Raises what `attach` raises once it has waited for so many seconds."""
        if not self._is_known.is_set():
            raise TimeoutError(f"the gateway at {self._address} has not accepted within {timeout} s: {self._words or 'no answer'}")
        if self._refused is not None:
            raise ConnectionRefusedError(self._refused)
