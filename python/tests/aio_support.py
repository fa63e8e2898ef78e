"""Stubs of `aio_echo.proto`, a servicer, and a server with a channel in one asyncio loop; afterwards nothing is left of them."""

import asyncio
import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import tempfile

import conftest
import grpc

conftest.generate(pathlib.Path(__file__).parent / "aio_protos", "*.proto")

import aio_echo_pb2 as pb  # noqa: E402
import aio_echo_pb2_grpc as pb_grpc  # noqa: E402

import tollfree.aio  # noqa: E402
from tollfree.aio._bridge import SHARED  # noqa: E402

Note = pb.Note


class AioEcho(pb_grpc.AioEchoServicer):
    """Answers with what it gets; before that it does what `text` says."""

    def __init__(self):
        self.metadata = None
        self.entered = asyncio.Event()
        self.released = asyncio.Event()
        # How handlers ended that waited: by their exceptions' names.
        self.endings = []
        self.sent = 0
        self.received = 0

    async def Unary(self, request, context):
        return await self._does(request, context)

    async def _does(self, request, context):
        self.entered.set()
        match request.text:
            case "abort":
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked: 100 % ü", (("why-bin", b"\x00\xff"),))
            case "code":
                context.set_code(grpc.StatusCode.NOT_FOUND)
                context.set_details("by code")
            case "raise":
                raise ValueError("an error of the handler's")
            case "wrong":
                return "no message"
            case "metadata":
                self.metadata = list(context.invocation_metadata())
                await context.send_initial_metadata((("first", "1"), ("raw-bin", b"\x00\xff")))
                context.set_trailing_metadata((("last", "2"), ("tail-bin", b"\x01\x02")))
            case "wait":
                await self._waits(context)
            case "remaining":
                return Note(count=int(context.time_remaining() * 1000))
            case "peer":
                return Note(text=context.peer(), data=b",".join(context.auth_context()["uid"]))
        return Note(text=request.text, data=request.data, count=request.count + 1)

    async def _waits(self, context):
        try:
            await self.released.wait()
            self.endings.append("released")
        except BaseException as error:
            self.endings.append((type(error).__name__, context.cancelled()))
            raise

    async def Download(self, request, context):
        self.entered.set()
        for count in range(request.count):
            if request.text == "abort" and count == 3:
                await context.abort(grpc.StatusCode.DATA_LOSS, "in the middle")
            if request.text == "wait" and count == 3:
                await self._waits(context)
            yield Note(count=count, data=request.data)
            self.sent += 1

    async def Upload(self, request_iterator, context):
        total = 0
        async for request in request_iterator:
            self.entered.set()
            self.received += 1
            if request.text == "wait":
                await self._waits(context)
            if request.text == "enough":
                break
            total += request.count
        return Note(count=total)

    async def Chat(self, request_iterator, context):
        # It writes by its context, and reads by the iterator.
        async for request in request_iterator:
            await context.write(await self._does(request, context))


class Pair:
    """A server and a channel to it, in the running loop."""

    def __init__(self, directory, servicer, server, channel):
        self.servicer = servicer
        self.address = f"shm://{directory}/echo.sock"
        self.server = tollfree.aio.server(**server)
        pb_grpc.add_AioEchoServicer_to_server(servicer, self.server)
        self.server.add_insecure_port(self.address)
        self.channel = tollfree.aio.insecure_channel(self.address, **channel)
        self.stub = pb_grpc.AioEchoStub(self.channel)

    def call_counts(self):
        """Calls under way, as client and as server."""
        bridge = self.channel._bridge
        return 0 if bridge is None else bridge.call_count(), len(self.server._calls)

    def native_call_count(self):
        """Calls under way in the server's native loop."""
        native = self.server._native
        return 0 if native is None else sum(map(native.call_count, self.server._sessions))

    async def no_calls(self):
        """Waits until there are none."""
        for _ in range(2000):
            if self.call_counts() == (0, 0) and not self.channel.calls and self.native_call_count() == 0:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"calls are left: {self.call_counts()}, {self.native_call_count()}")


@contextlib.asynccontextmanager
async def pair(servicer=None, server=None, channel=None):
    """A pair. No call is left when the block ends, and no task when both ends are closed."""
    tasks = asyncio.all_tasks()
    with tempfile.TemporaryDirectory() as directory:
        both = Pair(directory, servicer or AioEcho(), server or {}, channel or {})
        await both.server.start()
        try:
            yield both
            await both.no_calls()
        finally:
            await both.channel.close()
            await both.server.stop(None)
        assert not os.path.exists(f"{directory}/echo.sock")
    for _ in range(100):
        if not (left := asyncio.all_tasks() - tasks):
            break
        await asyncio.sleep(0.005)
    assert not left, f"tasks are left: {left}"


def run(scenario, runner=asyncio.run):
    """Runs a coroutine function in a loop of its own. Afterwards no bridge and no descriptor is left."""
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    answer = runner(scenario())
    gc.collect()
    assert not SHARED._bridges
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    return answer


async def error_of(call):
    """The error of a call that fails."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call has succeeded")


async def until(is_so, words="it was not so in time"):
    """Waits for a condition that nobody tells of."""
    for _ in range(4000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(words)


PROGRAM = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from aio_support import AioEcho, Note, Pair, pb_grpc
import tollfree.aio

async def main():
    server = tollfree.aio.server()
    pb_grpc.add_AioEchoServicer_to_server(AioEcho(), server)
    server.add_insecure_port(sys.argv[1])
    await server.start()
    print("ready", flush=True)
    {then}

asyncio.run(main())
"""


def program(address, then):
    """A process with a server at an address, that does something then."""
    text = PROGRAM.format(tests=os.path.dirname(__file__), then=then)
    process = subprocess.Popen([sys.executable, "-c", text, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process
