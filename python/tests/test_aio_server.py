"""Servers for asyncio: how they stop, whom they refuse, handlers that are no coroutines, and servicers of grpcio's own packages."""

import asyncio
import logging
import os
import tempfile
import threading
from concurrent import futures

import grpc
import pytest
from aio_support import AioEcho, Note, Pair, error_of, pair, pb_grpc, run, until
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

import tollfree.aio


def waiting(both):
    return asyncio.ensure_future(error_of(both.stub.Unary(Note(text="wait"))))


def test_a_stop_without_grace_ends_calls_at_once():
    async def scenario():
        async with pair() as both:
            calls = [waiting(both) for _ in range(3)]
            await until(lambda: both.call_counts()[1] == 3)
            await both.server.stop(None)
            assert both.servicer.endings == [("CancelledError", True)] * 3, "handlers have ended before"
            for call in calls:
                error = await call
                assert error.code() is grpc.StatusCode.UNAVAILABLE and "stopped" in error.details()
            assert (await error_of(both.stub.Unary(Note()))).code() is grpc.StatusCode.UNAVAILABLE
            assert not await both.server.wait_for_termination()
            await both.server.stop(None)
            with pytest.raises(grpc.aio.UsageError):
                await both.server.start()

    run(scenario)


def test_a_stop_with_grace_lets_calls_end():
    async def scenario():
        async with pair() as both:
            call = asyncio.ensure_future(_text(both.stub.Unary(Note(text="wait"))))
            await both.servicer.entered.wait()
            stopping = asyncio.create_task(both.server.stop(30))
            assert await both.server.wait_for_termination(0.05), "it has not stopped yet"
            refused = await error_of(both.stub.Unary(Note()))
            assert refused.code() is grpc.StatusCode.UNAVAILABLE
            both.servicer.released.set()
            assert await call == "wait"
            await stopping
            assert not await both.server.wait_for_termination(1)

    run(scenario)


async def _text(call):
    return (await call).text


def test_the_shortest_grace_counts():
    async def scenario():
        async with pair() as both:
            call = waiting(both)
            await both.servicer.entered.wait()
            long = asyncio.create_task(both.server.stop(1000))
            await asyncio.sleep(0.01)
            # A task that waits for the stop may be cancelled: the server stops all the same.
            long.cancel()
            await both.server.stop(0.05)
            assert (await call).code() is grpc.StatusCode.UNAVAILABLE
            assert both.servicer.endings == [("CancelledError", True)]

    run(scenario)


def test_a_server_that_was_never_started():
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            server = tollfree.aio.server()
            server.add_insecure_port(f"shm://{directory}/s.sock")
            await server.stop(None)
            assert not await server.wait_for_termination()

    run(scenario)


def test_addresses_that_can_not_be_served():
    async def scenario():
        server = tollfree.aio.server()
        with pytest.raises(ValueError, match="grpc.aio.server"):
            server.add_insecure_port("localhost:0")
        with pytest.raises(OSError, match="no-such-directory"):
            server.add_insecure_port("shm:///no-such-directory/s.sock")
        with pytest.raises(ValueError, match="kernel"):
            server.add_secure_port("shm:///tmp/s.sock", None)
        await server.stop(None)

    run(scenario)


def test_calls_above_the_most_are_refused():
    async def scenario():
        async with pair(server={"maximum_concurrent_rpcs": 2}) as both:
            calls = [asyncio.ensure_future(_text(both.stub.Unary(Note(text="wait")))) for _ in range(2)]
            await until(lambda: both.call_counts()[1] == 2)
            error = await error_of(both.stub.Unary(Note()))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "limit exceeded" in error.details()
            both.servicer.released.set()
            await asyncio.gather(*calls)
            assert (await both.stub.Unary(Note(count=1))).count == 2
        with pytest.raises(ValueError):
            tollfree.aio.server(maximum_concurrent_rpcs=0)

    run(scenario)


def test_what_a_context_knows():
    async def scenario():
        seen = {}

        class Looks(AioEcho):
            async def Unary(self, request, context):
                context.add_done_callback(lambda context: seen.update(done=context.done()))
                context.set_code(grpc.StatusCode.OK)
                context.set_details("fine")
                context.set_trailing_metadata((("a", "b"),))
                with pytest.raises((TypeError, ValueError)):
                    context.set_trailing_metadata((("Bad", "b"),))
                seen.update(
                    code=context.code(), details=context.details(), trailers=context.trailing_metadata(), key=context.peer_identity_key()
                )
                seen.update(cancelled=context.cancelled(), over=context.done(), identities=context.peer_identities())
                await context.send_initial_metadata(())
                with pytest.raises(grpc.aio.UsageError):
                    await context.send_initial_metadata(())
                return Note(text=context.peer(), data=context.auth_context()["pid"][0])

        async with pair(Looks()) as both:
            call = both.stub.Unary(Note())
            answer = await call
            assert await call.details() == "fine"
            assert answer.text == f"unix:pid={os.getpid()},uid={os.getuid()},gid={os.getgid()}"
            assert answer.data == str(os.getpid()).encode()
            await until(lambda: "done" in seen)
        assert seen == {
            "code": grpc.StatusCode.OK,
            "details": "fine",
            "trailers": (("a", "b"),),
            "key": "uid",
            "identities": [str(os.getuid()).encode()],
            "cancelled": False,
            "over": False,
            "done": True,
        }

    run(scenario)


def test_abort_in_its_variants(caplog):
    caplog.set_level(logging.CRITICAL, "tollfree")

    class Status(grpc.Status):
        code = grpc.StatusCode.ABORTED
        details = "by status"
        trailing_metadata = (("x", "y"),)

    class Aborts(AioEcho):
        async def Unary(self, request, context):
            match request.text:
                case "status":
                    await context.abort_with_status(Status())
                case "ok":
                    await context.abort(grpc.StatusCode.OK)
                case "suppressed":
                    try:
                        await context.abort(grpc.StatusCode.ABORTED, "the first counts")
                    except grpc.aio.AbortError:
                        with pytest.raises(grpc.aio.UsageError):
                            await context.abort(grpc.StatusCode.INTERNAL, "second")
                        for going_on in (context.write(Note()), context.read(), context.send_initial_metadata(())):
                            with pytest.raises(grpc.aio.AbortError):
                                await going_on
                    return Note()
                case "set":
                    context.set_code(grpc.StatusCode.DATA_LOSS)
                    raise ValueError("with a code of its own")

    async def scenario():
        async with pair(Aborts()) as both:
            error = await error_of(both.stub.Unary(Note(text="status")))
            assert (error.code(), error.details(), tuple(error.trailing_metadata())) == (
                grpc.StatusCode.ABORTED,
                "by status",
                (("x", "y"),),
            )
            wanted = {"ok": grpc.StatusCode.UNKNOWN, "suppressed": grpc.StatusCode.ABORTED, "set": grpc.StatusCode.DATA_LOSS}
            for text, code in wanted.items():
                error = await error_of(both.stub.Unary(Note(text=text)))
                assert error.code() is code, text

    run(scenario)


def test_a_generator_is_closed_before_its_call_is_done():
    class Endless(AioEcho):
        async def Download(self, request, context):
            context.add_done_callback(lambda _: self.endings.append("done"))
            try:
                while True:
                    yield Note(data=bytes(10_000))
                    self.sent += 1
            finally:
                await asyncio.sleep(0)
                self.endings.append("closed")

    async def scenario():
        async with pair(Endless()) as both:
            call = both.stub.Download(Note())
            await until(lambda: both.servicer.sent > 16)
            call.cancel()
            await both.no_calls()
            assert both.servicer.endings == ["closed", "done"]

    run(scenario)


class Sync(pb_grpc.AioEchoServicer):
    """Handlers that are no coroutines."""

    def __init__(self):
        self.threads = set()
        self.over = threading.Event()

    def Unary(self, request, context):
        self.threads.add(threading.current_thread().name)
        context.add_callback(self.over.set)
        match request.text:
            case "abort":
                context.abort(grpc.StatusCode.ABORTED, "from a thread")
            case "raise":
                raise ValueError("from a thread")
            case "metadata":
                context.send_initial_metadata((("first", context.peer()),))
                context.set_trailing_metadata((("last", "2"),))
        return Note(count=request.count + 1)

    def Download(self, request, context):
        for count in range(request.count):
            yield Note(count=count)

    def Upload(self, request_iterator, context):
        return Note(count=sum(request.count for request in request_iterator))

    def Chat(self, request_iterator, context):
        for request in request_iterator:
            yield Note(count=request.count + 1)


@pytest.mark.parametrize("has_pool", [True, False])
def test_handlers_that_are_no_coroutines(has_pool):
    async def scenario():
        pool = futures.ThreadPoolExecutor(4, thread_name_prefix="migration") if has_pool else None
        servicer = Sync()
        async with pair(servicer, server={"migration_thread_pool": pool}) as both:
            assert (await both.stub.Unary(Note(count=1))).count == 2
            assert all(name.startswith("migration") == has_pool for name in servicer.threads)
            await until(servicer.over.is_set)
            for text, code in (("abort", grpc.StatusCode.ABORTED), ("raise", grpc.StatusCode.UNKNOWN)):
                error = await error_of(both.stub.Unary(Note(text=text)))
                assert error.code() is code and "from a thread" in error.details()
            call = both.stub.Unary(Note(text="metadata"))
            await call
            assert "pid=" in (await call.initial_metadata())["first"] and (await call.trailing_metadata())["last"] == "2"
            assert [each.count async for each in both.stub.Download(Note(count=500))] == list(range(500))
            assert (await both.stub.Upload([Note(count=1)] * 500)).count == 500
            assert [each.count async for each in both.stub.Chat([Note(count=1)] * 20)] == [2] * 20
            calls = await asyncio.gather(*(_text(both.stub.Unary(Note())) for _ in range(50)))
            assert len(calls) == 50
            # A generator in a thread ends with its call.
            call = both.stub.Download(Note(count=10_000_000))
            await call.read()
            call.cancel()
        if pool is not None:
            pool.shutdown()

    run(scenario)


@pytest.mark.parametrize("kind", ["Download", "Upload"])
def test_a_thread_that_waits_for_a_loop_that_was_closed_goes_on(kind):
    pool = futures.ThreadPoolExecutor(1)
    entered, may_write, ended = threading.Event(), threading.Event(), []

    class Writes(pb_grpc.AioEchoServicer):
        def Download(self, request, context):
            entered.set()
            may_write.wait()
            try:
                yield Note()
                yield Note()
            except RuntimeError as error:
                ended.append(error)

        def Upload(self, request_iterator, context):
            entered.set()
            try:
                return Note(count=len(list(request_iterator)))
            except RuntimeError as error:
                ended.append(error)

    with tempfile.TemporaryDirectory() as directory:
        loop = asyncio.new_event_loop()

        async def scenario():
            both = Pair(directory, Writes(), {"migration_thread_pool": pool}, {})
            await both.server.start()
            call = both.stub.Download(Note()) if kind == "Download" else both.stub.Upload()
            await until(entered.is_set)
            await asyncio.sleep(0.05)
            return both, call

        kept = loop.run_until_complete(scenario())
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False
        loop.close()
        may_write.set()
        pool.submit(int).result(60)
        del kept
    assert len(ended) == (0 if kind == "Download" else 1), "a generator is closed where it was, an iterator raises"
    pool.shutdown()


def test_health():
    async def scenario():
        async with pair() as both:
            servicer = health.aio.HealthServicer()
            health_pb2_grpc.add_HealthServicer_to_server(servicer, both.server)
            stub = health_pb2_grpc.HealthStub(both.channel)
            serving = health_pb2.HealthCheckResponse.SERVING
            assert (await stub.Check(health_pb2.HealthCheckRequest())).status == serving
            error = await error_of(stub.Check(health_pb2.HealthCheckRequest(service="unknown")))
            assert error.code() is grpc.StatusCode.NOT_FOUND
            watch = stub.Watch(health_pb2.HealthCheckRequest(service="echo"))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            await servicer.set("echo", serving)
            assert (await watch.read()).status == serving
            await servicer.enter_graceful_shutdown()
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()

    run(scenario)


def test_reflection():
    async def scenario():
        async with pair() as both:
            names = ("tollfree.aiotest.AioEcho", reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, both.server)
            stub = reflection_pb2_grpc.ServerReflectionStub(both.channel)
            asked = [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=names[0]),
            ]
            services, file = [each async for each in stub.ServerReflectionInfo(iter(asked))]
            assert {each.name for each in services.list_services_response.service} == set(names)
            assert b"AioEcho" in file.file_descriptor_response.file_descriptor_proto[0]

    run(scenario)
