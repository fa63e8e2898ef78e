"""The sides in Python of `tollfree-lab bench echo`, `stream` and `paced`: an end of calls, told what to do as the program in Go is.

peer serve -side SIDE -dir DIRECTORY -size LENGTH
peer call -side SIDE -address ADDRESS -size LENGTH -inflight COUNT -warm-up 5ns -measure 5ns -calls COUNT
peer paced-call -side SIDE -address ADDRESS -size LENGTH -rate COUNT -warm-up 5ns -measure 5ns
peer stream-serve -side SIDE -dir DIRECTORY -warm-up 5ns
peer stream-call -side SIDE -address ADDRESS -kind KIND -size LENGTH -streams COUNT -warm-up 5ns -measure 5ns
peer arrays-serve -side SIDE -dir DIRECTORY
peer arrays -side SIDE -address ADDRESS -size LENGTH -calls COUNT
"""

import asyncio
import collections
import importlib.resources
import itertools
import json
import os
import pathlib
import queue
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
import numpy
import tollfree

HERE = pathlib.Path(__file__).parent
LENGTH_MIN = 4 << 20


def stubs():
    """Generates the stubs of the bench's service, for this process."""
    from grpc_tools import protoc

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as directory:
        paths = [f"-I{HERE.parent / 'proto'}", f"-I{well_known}"]
        outputs = [f"--python_out={directory}", f"--grpc_python_out={directory}"]
        if protoc.main(["protoc", *paths, *outputs, "echo.proto", "stream.proto"]) != 0:
            raise SystemExit("protoc failed")
        sys.path.insert(0, directory)
        import echo_pb2
        import echo_pb2_grpc
        import stream_pb2
        import stream_pb2_grpc
    return echo_pb2, echo_pb2_grpc, stream_pb2, stream_pb2_grpc


echo_pb2, echo_pb2_grpc, stream_pb2, stream_pb2_grpc = stubs()


def options(size):
    longest = max(size + 64, LENGTH_MIN)
    return [("grpc.max_receive_message_length", longest), ("grpc.max_send_message_length", longest)]


class Echo(echo_pb2_grpc.EchoServicer):
    def Call(self, request, context):
        return echo_pb2.EchoReply(body=request.body)


class EchoInline(echo_pb2_grpc.EchoServicer):
    @tollfree.inline
    def Call(self, request, context):
        return echo_pb2.EchoReply(body=request.body)


class EchoByRef(echo_pb2_grpc.EchoServicer):
    """Reads each page of what comes where it lies, and gives back the same memory."""

    @tollfree.views
    def Call(self, request, context):
        read(request.body)
        return tollfree.message(echo_pb2.EchoReply(), body=request.body)


def read(body):
    """A byte of each page."""
    return int(numpy.frombuffer(body, numpy.uint8)[::4096].sum())


def pool_of(directory):
    return f"shm://{directory}/pool.sock"


class EchoAio(echo_pb2_grpc.EchoServicer):
    async def Call(self, request, context):
        return echo_pb2.EchoReply(body=request.body)


def ends_with_input():
    """The process ends with its input, which the bench holds."""

    def read():
        while os.read(0, 64):
            pass
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()


def serve(given):
    side, size = given["-side"], int(given["-size"])
    scheme = "unix:" if side.startswith("grpcio") else "shm://"
    address = f"{scheme}{given['-dir']}/python.sock"
    ends_with_input()
    if side in ("python-aio", "grpcio-aio"):
        return asyncio.run(serve_aio(side, size, address))
    pool = futures.ThreadPoolExecutor(8)
    if side == "python-ref":
        server = tollfree.server(pool, options=options(size), pool=tollfree.Pool.create(pool_of(given["-dir"])))
    else:
        make = grpc.server if side == "grpcio" else tollfree.server
        server = make(pool, options=options(size))
    servicers = {"python-inline": EchoInline, "python-ref": EchoByRef}
    servicer = servicers.get(side, Echo)()
    echo_pb2_grpc.add_EchoServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    say(address)
    server.wait_for_termination()


def say(address):
    """Says where the server is, and whose time its clients count."""
    print(f"{address}#{os.getpid()}", flush=True)


def time_of(given, name):
    """A time as it was given, in nanoseconds."""
    return int(given[name].removesuffix("ns"))


class Used:
    """Processor time of this process and of another one, from when this is made."""

    def __init__(self, process):
        # The kernel's number of another process's clock (clock_getcpuclockid).
        self._clocks = (time.CLOCK_PROCESS_CPUTIME_ID, ~process << 3 | 2)
        self._before = self._now()

    def _now(self):
        return [time.clock_gettime_ns(clock) for clock in self._clocks]

    def since(self):
        own, other = (after - before for after, before in zip(self._now(), self._before, strict=True))
        return {"client_cpu_ns": own, "server_cpu_ns": other}


async def serve_aio(side, size, address):
    make = grpc.aio.server if side == "grpcio-aio" else tollfree.aio.server
    server = make(options=options(size))
    echo_pb2_grpc.add_EchoServicer_to_server(EchoAio(), server)
    server.add_insecure_port(address)
    await server.start()
    say(address)
    await server.wait_for_termination()


class Order:
    """What is to be measured, and for how long."""

    def __init__(self, given):
        self.side = given["-side"]
        self.address, _, process = given["-address"].partition("#")
        # A server in Rust does not say it.
        self.process = int(process or 0)
        self.size, self.inflight = int(given["-size"]), int(given["-inflight"])
        self.calls = -(-int(given["-calls"]) // self.inflight)
        self.begins = time.perf_counter_ns() + int(given["-warm-up"].removesuffix("ns"))
        self.ends = self.begins + int(given["-measure"].removesuffix("ns"))
        self.body = bytes(at % 256 for at in range(self.size))
        self.request = echo_pb2.EchoRequest(body=self.body)
        self.pool = None
        if self.side.startswith("python-ref"):
            self.pool = tollfree.Pool.join(pool_of(os.path.dirname(self.address.removeprefix("shm://"))))
            self.request = tollfree.message(echo_pb2.EchoRequest(), body=self.pool.copy(self.body))

    def channel(self):
        if self.pool is not None:
            return tollfree.views(tollfree.insecure_channel(self.address, options=options(self.size), pool=self.pool))
        make = grpc.insecure_channel if self.side == "grpcio" else tollfree.insecure_channel
        return make(self.address, options=options(self.size))

    def check(self, reply):
        if bytes(reply.body) != self.body:
            raise SystemExit("other bytes came back")

    def is_over(self, after, count):
        return count >= self.calls if self.calls else after > self.ends


def run_calls(order, call, times):
    """One call after the other; times of those that count."""
    now = time.perf_counter_ns
    before, count = now(), 0
    while True:
        call(order.request)
        after = now()
        if order.is_over(after, count):
            return
        if before >= order.begins:
            times.append(after - before)
            count += 1
        before = after


async def run_calls_aio(order, call, times):
    now = time.perf_counter_ns
    before, count = now(), 0
    while True:
        await call(order.request)
        after = now()
        if order.is_over(after, count):
            return
        if before >= order.begins:
            times.append(after - before)
            count += 1
        before = after


def measure(order):
    with order.channel() as channel:
        call = echo_pb2_grpc.EchoStub(channel).Call
        order.check(call(order.request, wait_for_ready=True))
        all_times = [[] for _ in range(order.inflight)]
        if order.inflight == 1:
            run_calls(order, call, all_times[0])
        else:
            threads = [threading.Thread(target=run_calls, args=(order, call, times)) for times in all_times]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return all_times


async def measure_aio(order):
    make = grpc.aio.insecure_channel if order.side == "grpcio-aio" else tollfree.aio.insecure_channel
    async with make(order.address, options=options(order.size)) as channel:
        call = echo_pb2_grpc.EchoStub(channel).Call
        order.check(await call(order.request, wait_for_ready=True))
        all_times = [[] for _ in range(order.inflight)]
        await asyncio.gather(*(run_calls_aio(order, call, times) for times in all_times))
    return all_times


def counted(times):
    """A histogram."""
    return sorted(collections.Counter(times).items())


def channel_to(given, **more):
    make = grpc.insecure_channel if given["-side"] == "grpcio" else tollfree.insecure_channel
    address, _, process = given["-address"].partition("#")
    return make(address, options=options(int(given["-size"])), **more), int(process)


def paced(given):
    """A call whenever one is due, one at a time. One that is due while the one before goes on is missed."""
    pause = 1 / int(given["-rate"])
    measure, now = time_of(given, "-measure"), time.perf_counter_ns
    channel, process = channel_to(given)
    call, request = echo_pb2_grpc.EchoStub(channel).Call, echo_pb2.EchoRequest(body=bytes(int(given["-size"])))
    call(request, wait_for_ready=True)
    begins = now() + time_of(given, "-warm-up")
    times, missed, used = [], 0, None
    due = time.monotonic() + pause
    while True:
        time.sleep(max(due - time.monotonic(), 0))
        before = now()
        call(request)
        after = now()
        skipped = max(int((time.monotonic() - due) / pause), 0)
        due += (1 + skipped) * pause
        if used is None:
            if after > begins:
                used, begins = Used(process), now()
            continue
        missed += skipped
        times.append(after - before)
        if after - begins >= measure:
            break
    print(json.dumps({"latencies": counted(times), "missed": missed, "throttled_ns": None, **used.since()}))
    channel.close()


BURST = 100


def sampled(size):
    """A gap between messages is timed once in so many: a prime goes round in pieces of any number of messages."""
    return 31 if size < 16 << 10 else 2


def items(size, count=None):
    """The messages of a stream, whose first bytes are their numbers."""
    payload = bytearray(at % 256 for at in range(size))
    for number in itertools.count() if count is None else range(count):
        payload[0] = number % 256
        yield stream_pb2.StreamItem(payload=bytes(payload))


class Taker:
    """Looks at each message that a stream brings, and counts those that come once both ends are warm."""

    def __init__(self, begins):
        self._begins = begins
        self.count = self.bytes = self._cold = 0
        self._began = 0
        self.gaps = []

    def take(self, item):
        """The time, where a gap was timed; else 0."""
        payload = item.payload
        if not payload or payload[0] != self.count % 256:
            raise SystemExit(f"message {self.count} of a stream is another")
        place = self.count % sampled(len(payload))
        self.count += 1
        self.bytes += len(payload)
        if place > 1:
            return 0
        now = time.perf_counter_ns()
        if place == 0:
            self._began = now
        if self._began < self._begins:
            self._cold = self.count
            return 0
        if place == 0:
            return 0
        self.gaps.append(now - self._began)
        return now

    def counted(self):
        return self.count - self._cold


class Streams(stream_pb2_grpc.StreamsServicer):
    def __init__(self, warm_up):
        self._warm_up = warm_up

    def Down(self, request, context):
        return items(request.size)

    def Up(self, request_iterator, context):
        taker = Taker(time.perf_counter_ns() + self._warm_up)
        for item in request_iterator:
            taker.take(item)
        return stream_pb2.StreamSum(messages=taker.count, bytes=taker.bytes, gaps=json.dumps(counted(taker.gaps)))

    def Both(self, request_iterator, context):
        return request_iterator


def stream_serve(given):
    side = given["-side"]
    make = grpc.server if side == "grpcio" else tollfree.server
    address = f"{'unix:' if side == 'grpcio' else 'shm://'}{given['-dir']}/python.sock"
    ends_with_input()
    server = make(futures.ThreadPoolExecutor(64))
    stream_pb2_grpc.add_StreamsServicer_to_server(Streams(time_of(given, "-warm-up")), server)
    server.add_insecure_port(address)
    server.start()
    say(address)
    server.wait_for_termination()


class Streamer:
    """Carries one stream for the whole time, or one after the other, and counts."""

    def __init__(self, stub, size, begins, ends):
        self._stub, self._size = stub, size
        self._begins, self._ends = begins, ends
        self.messages, self.times = 0, []

    def run(self, kind):
        {"server": self._down, "client": self._up, "ping-pong": self._ping_pong, "burst": self._bursts}[kind]()

    def _down(self):
        taker = Taker(self._begins)
        call = self._stub.Down(stream_pb2.StreamAsk(size=self._size))
        for item in call:
            if taker.take(item) > self._ends:
                break
        call.cancel()
        self.messages, self.times = taker.counted(), taker.gaps

    def _up(self):
        sent = cold = 0

        def requests():
            nonlocal sent, cold
            for item in items(self._size):
                if sent % sampled(self._size) == 0:
                    now = time.perf_counter_ns()
                    if now < self._begins:
                        cold = sent
                    elif now > self._ends:
                        return
                yield item
                sent += 1

        total = self._stub.Up(requests())
        if (total.messages, total.bytes) != (sent, sent * self._size):
            raise SystemExit(f"of {sent} messages {total.messages} arrived")
        self.messages = sent - cold
        for gap, count in json.loads(total.gaps):
            self.times += [gap] * count

    def _trip(self, began, messages):
        """Counts a round trip of so many messages. Whether it was the last that counts."""
        now = time.perf_counter_ns()
        if now > self._begins:
            self.times.append(now - began)
            self.messages += messages
        return now > self._ends

    def _ping_pong(self):
        due, taker = queue.SimpleQueue(), Taker(self._begins)
        call = self._stub.Both(iter(due.get, None))
        for item in items(self._size):
            began = time.perf_counter_ns()
            due.put(item)
            taker.take(next(call))
            if self._trip(began, 2):
                break
        due.put(None)
        self._finish(call)

    def _bursts(self):
        is_last = False
        while not is_last:
            taker, began = Taker(self._begins), time.perf_counter_ns()
            call = self._stub.Both(items(self._size, BURST))
            for _ in range(BURST):
                taker.take(next(call))
            is_last = self._trip(began, 2 * BURST)
            self._finish(call)

    def _finish(self, call):
        if next(call, None) is not None:
            raise SystemExit("a stream goes on behind its end")


def stream_call(given):
    channel, process = channel_to(given)
    stub, size = stream_pb2_grpc.StreamsStub(channel), int(given["-size"])
    back = list(stub.Both(items(size, 3), wait_for_ready=True))
    if back != list(items(size, 3)):
        raise SystemExit("a message is not what was sent")
    begins = time.perf_counter_ns() + time_of(given, "-warm-up")
    ends = begins + time_of(given, "-measure")
    streamers = [Streamer(stub, size, begins, ends) for _ in range(int(given["-streams"]))]
    threads = [threading.Thread(target=each.run, args=(given["-kind"],)) for each in streamers]
    for thread in threads:
        thread.start()
    time.sleep(max(begins - time.perf_counter_ns(), 0) / 1e9)
    began, used = time.perf_counter_ns(), Used(process)
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter_ns() - began
    times = [took for each in streamers for took in each.times]
    messages = sum(each.messages for each in streamers)
    print(json.dumps({"messages": messages, "elapsed_ns": elapsed, "latencies": counted(times), **used.since()}))
    channel.close()


OTHERS = {
    "paced-call": paced,
    "stream-serve": stream_serve,
    "stream-call": stream_call,
}


def main():
    part, *rest = sys.argv[1:]
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    if part == "serve":
        return serve(given)
    if part in OTHERS:
        return OTHERS[part](given)
    order = Order(given)
    all_times = asyncio.run(measure_aio(order)) if "aio" in order.side else measure(order)
    elapsed = min(time.perf_counter_ns(), order.ends) - order.begins if not order.calls else time.perf_counter_ns() - order.begins
    print(json.dumps({"elapsed_ns": max(elapsed, 1), "latencies": counted(took for times in all_times for took in times)}))


if __name__ == "__main__":
    main()
