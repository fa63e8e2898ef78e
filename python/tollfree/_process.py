"""What a process has once: the client with its loop, the thread that tells of ends, and what a fork does to them."""

import atexit
import logging
import os
import threading

import grpc

from tollfree import _native

_LOGGER = logging.getLogger("tollfree")

AGENT = f"grpc-python/{grpc.__version__} tollfree"

# How often this process was forked since the module was loaded: what belongs to an earlier count is the parent's.
forks = 0
_clients: dict[tuple, "Client"] = {}
# A collected channel leaves its client, maybe while this thread has the lock.
_lock = threading.RLock()


class Client:
    """A native client of this process, with the callbacks of its calls and channels."""

    def __init__(self, agent, receive_len_max, metadata_len_max, pool):
        self.native = _native.Client(agent, receive_len_max, metadata_len_max, pool)
        self.has_pool = pool is not None
        # Channels that are open.
        self.user_count = 0
        self._callbacks = {}
        self._watchers = {}
        self._lock = threading.Lock()
        self._thread = None

    def when_over(self, call, callback):
        """Has a callback called by a thread of this client's once a native call is over."""
        with self._lock:
            self._callbacks.setdefault(call.number, []).append(callback)
            first = len(self._callbacks[call.number]) == 1
            self._begin_thread()
        if first and not call.tell_end():
            # It is over already, and no notice comes.
            self._run(call.number)

    def watch(self, channel, callback):
        """Has a callback called with each state of a channel that follows; None: with none any more."""
        with self._lock:
            if callback is None:
                self._watchers.pop(channel, None)
            else:
                self._watchers[channel] = callback
                self._begin_thread()

    def _begin_thread(self):
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="tollfree-notices", daemon=True)
            self._thread.start()

    def _listen(self):
        while True:
            try:
                notice = self.native.notice(3600.0)
            except (StopIteration, RuntimeError):
                return
            if notice is None:
                continue
            number, state = notice
            if state is None:
                self._run(number)
            else:
                watcher = self._watchers.get(number)
                if watcher is not None:
                    logged(watcher, state)

    def _run(self, number):
        with self._lock:
            callbacks = self._callbacks.pop(number, ())
        for callback in callbacks:
            logged(callback)

    def close(self):
        self.native.close()


def logged(callback, *arguments):
    """Calls what users gave; what that raises is logged."""
    try:
        callback(*arguments)
    except Exception:
        _LOGGER.exception("a callback has failed")


def client(agent=None, receive_len_max=None, metadata_len_max=None, pool=None):
    """This process's client with such limits and pool, for a channel more."""
    key = (agent, receive_len_max, metadata_len_max, pool)
    with _lock:
        while True:
            each = _clients.get(key)
            if each is None:
                each = _clients[key] = Client(agent or AGENT, receive_len_max, metadata_len_max, pool)
            each.user_count += 1
            # A channel that the collector finds here may be the last that another one had.
            if _clients.get(key) is each:
                return each


def leave(client):
    """A channel was closed.

    Without channels, a client with a pool ends, since it would keep this process a member. Others stay for the next channel.
    """
    with _lock:
        client.user_count -= 1
        if not client.has_pool or client.user_count:
            return
        for key, each in list(_clients.items()):
            if each is client:
                del _clients[key]
    client.close()


def _forked():
    global forks, _lock
    forks += 1
    # The parent's may have been held by a thread that is not here.
    _lock = threading.RLock()
    _native.forked()
    _ABANDONED.append(dict(_clients))
    _clients.clear()


# The parent's clients are never dropped in a child.
_ABANDONED: list[dict] = []
os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close():
    for each in list(_clients.values()):
        each.close()
