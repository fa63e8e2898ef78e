"""Channels that ask servers for their health, by grpcio's own health service."""

import asyncio
import contextlib
import tempfile
import time
from concurrent import futures

import echo_pb2_grpc
import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from support import Echo, message

import tollfree

CONFIG = '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "echo"}}'
OPTIONS = [("grpc.service_config", CONFIG)]
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@contextlib.contextmanager
def servers(count, with_health=True):
    """Servers with their health services, and a channel's target."""
    with tempfile.TemporaryDirectory() as directory:
        made = []
        for at in range(count):
            servicer, checks = Echo(), health.HealthServicer()
            # A watch holds a thread.
            server = tollfree.server(futures.ThreadPoolExecutor(8))
            echo_pb2_grpc.add_EchoServicer_to_server(servicer, server)
            if with_health:
                health_pb2_grpc.add_HealthServicer_to_server(checks, server)
            server.add_insecure_port(f"shm://{directory}/{at}.sock")
            server.start()
            made.append((server, servicer, checks))
        yield made, ",".join(f"shm://{directory}/{at}.sock" for at in range(count))
        for server, _, _ in made:
            server.stop(None)


def until(is_so):
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end, "it does not come to it"
        time.sleep(0.002)


def test_a_server_that_does_not_serve_gets_no_calls():
    with servers(2) as (made, target), tollfree.insecure_channel(target, options=OPTIONS) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        made[0][2].set("echo", NOT_SERVING)
        made[1][2].set("echo", SERVING)
        for _ in range(10):
            assert stub.Unary(message("x"), wait_for_ready=True, timeout=10).count == 1
        assert not made[0][1].entered.is_set()
        made[1][2].set("echo", NOT_SERVING)

        def is_refused():
            try:
                stub.Unary(message("x"), timeout=10)
            except grpc.RpcError as error:
                return error
            return None

        until(is_refused)
        error = is_refused()
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "NOT_SERVING" in error.details() and '"echo"' in error.details()
        waiting = stub.Unary.future(message("x"), wait_for_ready=True, timeout=10)
        made[0][2].set("echo", SERVING)
        assert waiting.result().count == 1 and made[0][1].entered.is_set()


def test_a_server_without_a_health_service_serves():
    with servers(1, with_health=False) as (_, target), tollfree.insecure_channel(target, options=OPTIONS) as channel:
        assert echo_pb2_grpc.EchoStub(channel).Unary(message("x"), timeout=10).count == 1


def test_asyncio_channels_ask_too():
    async def scenario(target, checks):
        async with tollfree.aio.insecure_channel(target, options=OPTIONS) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            with pytest.raises(grpc.aio.AioRpcError, match="SERVICE_UNKNOWN"):
                await stub.Unary(message("x"), timeout=10)
            waiting = stub.Unary(message("x"), wait_for_ready=True, timeout=10)
            checks.set("echo", SERVING)
            assert (await waiting).count == 1

    with servers(1) as (made, target):
        asyncio.run(scenario(target, made[0][2]))
