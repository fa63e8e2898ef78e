"""Hostile peers of the Rust implementation's list, against both ends: they are refused, and others are served."""

import os
import subprocess
import time
from concurrent import futures

import echo_pb2_grpc
import grpc
import pytest
from support import message

import tollfree

HOSTILE = os.environ.get("TOLLFREE_HOSTILE")
pytestmark = pytest.mark.skipif(HOSTILE is None, reason="TOLLFREE_HOSTILE names no hostile peer; `make python` builds one")


def _lies(kind, least):
    listed = subprocess.run([HOSTILE, "list", kind], capture_output=True, text=True, check=True).stdout
    names = [line.partition("\t")[0] for line in listed.splitlines()]
    assert len(names) >= least
    return names


def _harm(kind, name, socket):
    done = subprocess.run([HOSTILE, kind, name, socket], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"{kind}, {name}: {done.stderr}{done.stdout}"


def _left():
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("/memfd:" in line for line in maps)


class _Any(grpc.GenericRpcHandler):
    """Echoes the bytes of whatever method is called."""

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)


@pytest.mark.parametrize(("kind", "least"), [("greeting", 20), ("client", 35)])
def test_a_server_outlives_hostile_clients(tmp_path, kind, least):
    socket = f"{tmp_path}/victim.sock"
    server = tollfree.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([_Any()])
    server.add_insecure_port(f"shm://{socket}")
    server.start()
    with tollfree.insecure_channel(f"shm://{socket}") as channel:
        call = channel.unary_unary("/any/Method")
        call(b"before")
        before = _left()
        for name in _lies(kind, least):
            _harm(kind, name, socket)
            assert call(b"beside", timeout=10) == b"beside"
        until = time.monotonic() + 10
        while time.monotonic() < until and (_left()[0] > before[0] or server._calls.count()):
            time.sleep(0.02)
        assert _left()[0] <= before[0] and server._calls.count() == 0
        assert _left()[1] <= before[1], "their memory was given back"
    server.stop(None)


@pytest.mark.parametrize(("kind", "least"), [("welcome", 10), ("server", 35)])
def test_a_client_outlives_hostile_servers(tmp_path, kind, least):
    descriptors = _left()[0]
    for nth, name in enumerate(_lies(kind, least)):
        socket = f"{tmp_path}/{kind}{nth}.sock"
        peer = subprocess.Popen([HOSTILE, kind, name, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert peer.stdout.readline() == "ready\n"
        with tollfree.insecure_channel(f"shm://{socket}") as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            # Some lies come after a right answer.
            try:
                stub.Unary(message("called"), timeout=2)
            except (grpc.RpcError, UnicodeDecodeError):
                pass
        peer.communicate(timeout=30)
        assert peer.returncode == 0, name
    until = time.monotonic() + 10
    while time.monotonic() < until and _left()[0] > descriptors + 4:
        time.sleep(0.02)
    assert _left()[0] <= descriptors + 4
