"""The same client and servicer twice: by grpcio over a Unix socket, and by Tollfree. Two processes each.

python demo.py [--json]
"""

import argparse
import importlib.resources
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from concurrent import futures

CALLS = 5000
HERE = pathlib.Path(__file__).parent


def stubs(directory):
    """Generates the stubs of the tests' service."""
    from grpc_tools import protoc

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    generated = [f"--python_out={directory}", f"--grpc_python_out={directory}"]
    if protoc.main(["protoc", f"-I{HERE / 'tests'}", f"-I{well_known}", *generated, "echo.proto"]) != 0:
        raise SystemExit("demo: protoc failed")


def serve(kind, address):
    """Serves until the standard input ends."""
    import echo_pb2_grpc
    import grpc

    import tollfree

    class Echo(echo_pb2_grpc.EchoServicer):
        def Unary(self, request, context):
            return request

    class AtOnce(Echo):
        @tollfree.inline
        def Unary(self, request, context):
            return request

    pool = futures.ThreadPoolExecutor(4)
    server = grpc.server(pool) if kind == "grpcio" else tollfree.server(pool)
    echo_pb2_grpc.add_EchoServicer_to_server(AtOnce() if kind == "inline" else Echo(), server)
    server.add_insecure_port(address)
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(None)


def call(kind, address):
    """Makes calls: their times in microseconds, in order of size."""
    import echo_pb2
    import echo_pb2_grpc
    import grpc

    import tollfree

    open_channel = grpc.insecure_channel if kind == "grpcio" else tollfree.insecure_channel
    with open_channel(address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        request = echo_pb2.Message(data=bytes(64))
        for _ in range(CALLS // 10):
            stub.Unary(request, wait_for_ready=True)
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            assert stub.Unary(request) == request
            times.append((time.perf_counter() - began) * 1e6)
        return sorted(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "ADDRESS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(*arguments.serve)
    figures = {}
    with tempfile.TemporaryDirectory(prefix="tollfree-demo-") as directory:
        sys.path.insert(0, directory)
        stubs(directory)
        for kind in ("grpcio", "pool", "inline"):
            address = f"{'unix:' if kind == 'grpcio' else 'shm://'}{directory}/{kind}.sock"
            command = [sys.executable, __file__, "--serve", kind, address]
            environment = {"PYTHONPATH": ":".join([directory, *sys.path]), "PYTHONSAFEPATH": "1"}
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
                if server.stdout.readline() != "ready\n":
                    raise SystemExit(f"demo: the server of kind {kind} did not start; its words are above")
                print(f"{CALLS} calls: {kind} …", file=sys.stderr)
                times = call(kind, address)
                figures[kind] = {"p50_us": round(times[CALLS // 2], 1), "p99_us": round(times[CALLS * 99 // 100], 1)}
                server.stdin.close()
    if arguments.json:
        return print(json.dumps({"calls": CALLS, "message_bytes": 64, "sides": figures}))
    names = {
        "grpcio": "grpcio over a Unix socket",
        "pool": "Tollfree, handler in the thread pool",
        "inline": "Tollfree, handler inline",
    }
    print(f"\nA unary call with a message of 64 bytes, one at a time ({CALLS} each):\n")
    for kind, of in figures.items():
        ratio = figures["grpcio"]["p50_us"] / of["p50_us"]
        print(f"  {names[kind]:<38} p50 {of['p50_us']:7.1f} µs   p99 {of['p99_us']:7.1f} µs   {ratio:5.1f} times as fast")


if __name__ == "__main__":
    main()
