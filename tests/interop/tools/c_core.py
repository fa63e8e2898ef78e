"""Clients of gRPC's C core at addresses of Unix sockets: what works with grpc.default_authority, and what they see without it.

usage: c_core.py <tollfree-interop>
"""

import os
import subprocess
import sys
import tempfile

import grpc

PATIENCE_S = 20
CALL = "/grpc.testing.TestService/EmptyCall"
STREAM = "/grpc.testing.TestService/FullDuplexCall"


def start(program, *arguments):
    """A process of ours, which ends when its standard input does."""
    return subprocess.Popen([program, *arguments], stdin=subprocess.PIPE)


def calls(address, options):
    """Makes a call of one message each way and one of streams; the code of the first that fails, or None."""
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            for _ in range(3):
                assert channel.unary_unary(CALL)(b"", timeout=PATIENCE_S, wait_for_ready=True) == b""
            # Requests without parameters have no answers.
            assert not list(channel.stream_stream(STREAM)(iter([b""] * 3), timeout=PATIENCE_S))
        except grpc.RpcError as error:
            return error.code()
    return None


def main(program):
    failures = []
    with tempfile.TemporaryDirectory() as directory:
        path = lambda name: os.path.join(directory, name)
        with open(path("gateway.toml"), "w") as config:
            config.write(
                f'listeners.local.address = "unix:{path("world.sock")}"\n'
                f'backends.socket = "shm://{path("backends.sock")}"\n'
            )
        ours = [
            start(program, "serve", f"unix:{path('server.sock')}"),
            start(program, "gateway", path("gateway.toml")),
            start(program, "attach", f"shm://{path('backends.sock')}"),
        ]
        try:
            for name in ["server", "world"]:
                address = f"unix:{path(name + '.sock')}"
                with_option = calls(address, [("grpc.default_authority", "localhost")])
                if with_option is not None:
                    failures.append(f"{address}: with grpc.default_authority a call ends {with_option}")
                # The documents say what such a client sees; where it works one day, they are to say so.
                without = calls(address, [])
                if without not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE):
                    failures.append(f"{address}: without grpc.default_authority a call ends {without}")
                print(f"{name}: with the option {with_option or 'OK'}, without {without}")
        finally:
            for process in ours:
                process.stdin.close()
                process.wait(timeout=PATIENCE_S)
    for failure in failures:
        print(f"interop: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
