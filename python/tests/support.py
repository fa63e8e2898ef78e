"""A servicer of all four kinds, and a server with a channel to it."""

import contextlib
import gc
import os
import tempfile
import threading
import time
from concurrent import futures

import echo_pb2
import echo_pb2_grpc
import grpc

import tollfree


class Echo(echo_pb2_grpc.EchoServicer):
    """Answers with what it gets; what `text` says is done before."""

    def __init__(self):
        self.seen = []
        self.cancelled = threading.Event()
        self.entered = threading.Event()

    def Unary(self, request, context):
        return self._does(request, context)

    def _does(self, request, context):
        self.entered.set()
        match request.text:
            case "fail":
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked: 100 % ü")
            case "code":
                context.set_code(grpc.StatusCode.NOT_FOUND)
                context.set_details("by code")
            case "raise":
                raise ValueError("an error of the handler's")
            case "metadata":
                self.seen = list(context.invocation_metadata())
                context.send_initial_metadata((("first", "1"), ("raw-bin", b"\x00\xff")))
                context.set_trailing_metadata((("last", "2"), ("tail-bin", b"\x01\x02")))
            case "wait":
                context.add_callback(self.cancelled.set)
                while context.is_active():
                    time.sleep(0.002)
            case "remaining":
                return echo_pb2.Message(count=int(context.time_remaining() * 1000))
            case "peer":
                auth = context.auth_context()
                return echo_pb2.Message(text=context.peer(), data=b",".join(auth["uid"]))
        return echo_pb2.Message(text=request.text, data=request.data, count=request.count + 1)

    def Download(self, request, context):
        for count in range(request.count):
            if request.text == "fail" and count == 3:
                context.abort(grpc.StatusCode.DATA_LOSS, "in the middle")
            self.seen.append(count)
            yield echo_pb2.Message(count=count, data=request.data)

    def Upload(self, requests, context):
        total = 0
        for request in requests:
            self.entered.set()
            total += request.count
        return echo_pb2.Message(count=total)

    def Chat(self, requests, context):
        for request in requests:
            yield self._does(request, context)


class Pair:
    """A server and a channel to it, in one process."""

    def __init__(self, directory, **given):
        self.servicer = given.pop("servicer", None) or Echo()
        self.address = f"shm://{directory}/echo.sock"
        self.pool = futures.ThreadPoolExecutor(given.pop("threads", 8))
        channel = given.pop("channel", {})
        self.server = tollfree.server(self.pool, **given)
        echo_pb2_grpc.add_EchoServicer_to_server(self.servicer, self.server)
        self.server.add_insecure_port(self.address)
        self.server.start()
        self.channel = tollfree.insecure_channel(self.address, **channel)
        self.stub = echo_pb2_grpc.EchoStub(self.channel)

    def close(self):
        self.channel.close()
        self.server.stop(None)
        self.pool.shutdown()


@contextlib.contextmanager
def pair(**given):
    """A pair, of which nothing is left afterwards."""
    descriptors = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory() as directory:
        both = Pair(directory, **given)
        try:
            yield both
        finally:
            both.close()
        until = time.monotonic() + 5
        # One client stays with the process: its loop has a few.
        while len(os.listdir("/proc/self/fd")) > descriptors + 4 and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 4
        assert both.server._calls.count() == 0


def message(text="", data=b"", count=0):
    return echo_pb2.Message(text=text, data=data, count=count)
