"""The sides in Python of `tollfree-lab bench echo`: an end of calls, told what to do as the program in Go is.

    peer serve -side SIDE -dir DIRECTORY -size LENGTH
    peer call -side SIDE -address ADDRESS -size LENGTH -inflight COUNT -warm-up 5ns -measure 5ns -calls COUNT
"""

import asyncio
import importlib.resources
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
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
        if protoc.main(["protoc", *paths, *outputs, "echo.proto"]) != 0:
            raise SystemExit("protoc failed")
        sys.path.insert(0, directory)
        import echo_pb2
        import echo_pb2_grpc
    return echo_pb2, echo_pb2_grpc


echo_pb2, echo_pb2_grpc = stubs()


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
    make = grpc.server if side == "grpcio" else tollfree.server
    server = make(pool, options=options(size))
    servicer = EchoInline() if side == "python-inline" else Echo()
    echo_pb2_grpc.add_EchoServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    print(address, flush=True)
    server.wait_for_termination()


async def serve_aio(side, size, address):
    make = grpc.aio.server if side == "grpcio-aio" else tollfree.aio.server
    server = make(options=options(size))
    echo_pb2_grpc.add_EchoServicer_to_server(EchoAio(), server)
    server.add_insecure_port(address)
    await server.start()
    print(address, flush=True)
    await server.wait_for_termination()


class Order:
    """What is to be measured, and for how long."""

    def __init__(self, given):
        self.side, self.address = given["-side"], given["-address"]
        self.size, self.inflight = int(given["-size"]), int(given["-inflight"])
        self.calls = -(-int(given["-calls"]) // self.inflight)
        self.begins = time.perf_counter_ns() + int(given["-warm-up"].removesuffix("ns"))
        self.ends = self.begins + int(given["-measure"].removesuffix("ns"))
        self.request = echo_pb2.EchoRequest(body=bytes(at % 256 for at in range(self.size)))

    def check(self, reply):
        if reply.body != self.request.body:
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
    make = grpc.insecure_channel if order.side == "grpcio" else tollfree.insecure_channel
    with make(order.address, options=options(order.size)) as channel:
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


def main():
    part, *rest = sys.argv[1:]
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    if part == "serve":
        return serve(given)
    order = Order(given)
    all_times = asyncio.run(measure_aio(order)) if "aio" in order.side else measure(order)
    counted = {}
    for times in all_times:
        for took in times:
            counted[took] = counted.get(took, 0) + 1
    elapsed = min(time.perf_counter_ns(), order.ends) - order.begins if not order.calls else time.perf_counter_ns() - order.begins
    print(json.dumps({"elapsed_ns": max(elapsed, 1), "latencies": sorted(counted.items())}))


if __name__ == "__main__":
    main()
