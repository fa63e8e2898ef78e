"""Under which asyncio loops ends live, and what becomes of them when a loop, a process or a peer goes."""

import asyncio
import gc
import os
import signal
import tempfile
import threading
import weakref

import grpc
import pytest
import uvloop
from aio_support import AioEcho, Note, Pair, error_of, pair, pb_grpc, program, run, until

import tollfree.aio
from tollfree.aio import _bridge

# A process's first loop of uvloop keeps a few descriptors for good.
uvloop.run(asyncio.sleep(0))


def loops():
    return pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])


@loops()
def test_all_four_kinds_and_an_end_with_open_calls(runner):
    async def scenario():
        async with pair() as both:
            assert (await both.stub.Unary(Note(count=1))).count == 2
            assert len([each async for each in both.stub.Download(Note(count=100))]) == 100
            assert (await both.stub.Upload([Note(count=1)] * 100)).count == 100
            assert len([each async for each in both.stub.Chat([Note()] * 100)]) == 100
            error = await error_of(both.stub.Unary(Note(text="wait"), timeout=0.05))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            waiting = asyncio.ensure_future(error_of(both.stub.Unary(Note(text="wait"))))
            both.servicer.entered.clear()
            await both.servicer.entered.wait()
            await both.server.stop(None)
            assert (await waiting).code() is grpc.StatusCode.UNAVAILABLE

    run(scenario, runner)
    # A second loop in the same process.
    run(scenario, runner)


@loops()
def test_a_loop_that_is_closed_with_everything_open(runner):
    kept = []

    async def scenario():
        both = Pair(directory, AioEcho(), {}, {})
        await both.server.start()
        calls = [both.stub.Unary(Note(text="wait")), both.stub.Download(Note(text="wait", count=9))]
        await both.servicer.entered.wait()
        assert (await calls[1].read()).count == 0
        kept.extend((both, calls))

    with tempfile.TemporaryDirectory() as directory:
        run(scenario, runner)
        # Nothing of it is left, though the program has it all still.
        assert not os.path.exists(f"{directory}/echo.sock")
        both, calls = kept
        assert all(call.done() and call.cancelled() for call in calls)
        assert not calls[0].cancel()

        async def elsewhere():
            with pytest.raises(grpc.aio.UsageError, match="another event loop"):
                both.stub.Unary(Note())
            assert not await both.server.wait_for_termination()

        asyncio.run(elsewhere())


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_that_is_closed_without_ado(make):
    with tempfile.TemporaryDirectory() as directory:
        descriptors = len(os.listdir("/proc/self/fd"))
        loop = make()
        both = Pair(directory, AioEcho(), {}, {})

        async def begin():
            await both.server.start()
            asyncio.ensure_future(_awaited(both.stub.Unary(Note(text="wait"))))
            await both.servicer.entered.wait()

        loop.run_until_complete(begin())
        tasks = asyncio.all_tasks(loop)
        loop.close()
        for task in tasks:
            task._log_destroy_pending = False
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert both.channel._bridge.is_lost and not _bridge.SHARED._bridges


async def _awaited(call):
    return await call


def test_a_loop_that_nobody_has_any_more_goes():
    async def scenario():
        async with pair() as both:
            await both.stub.Unary(Note())
        return weakref.ref(asyncio.get_running_loop())

    loop = run(scenario)
    gc.collect()
    assert loop() is None


def test_channels_of_a_loop_share_a_bridge():
    async def scenario():
        async with pair() as both:
            other = tollfree.aio.insecure_channel(both.address)
            apart = tollfree.aio.insecure_channel(both.address, options=[("grpc.max_receive_message_length", 99)])
            assert other._bridge is both.channel._bridge is not apart._bridge
            await apart.close()
            await other.close()
            assert (await both.stub.Unary(Note(count=1))).count == 2
            del other
            lost = tollfree.aio.insecure_channel(both.address)
            await pb_grpc.AioEchoStub(lost).Unary(Note())
            del lost
            gc.collect()
            await until(lambda: [count for _, count in _bridge.SHARED._bridges.values()] == [1])

    run(scenario)


def test_a_channel_made_outside_of_a_loop():
    with tempfile.TemporaryDirectory() as directory:
        both = []

        def make():
            both.append(Pair(directory, AioEcho(), {}, {}))

        # Events of asyncio belong to no loop before they are waited for.
        make()

        async def scenario():
            await both[0].server.start()
            async with both[0].channel:
                assert (await both[0].stub.Unary(Note(count=1))).count == 2
            await both[0].server.stop(None)

        asyncio.run(scenario())


def test_another_threads_use_is_refused():
    async def scenario():
        async with pair() as both:
            errors = []

            def use():
                try:
                    both.stub.Unary(Note())
                except RuntimeError as error:
                    errors.append(error)

                async def inside():
                    with pytest.raises(grpc.aio.UsageError, match="another event loop"):
                        both.stub.Unary(Note())

                asyncio.run(inside())

            await asyncio.to_thread(use)
            assert len(errors) == 1
            # What another thread drops is cancelled by this one.
            call = both.stub.Unary(Note(text="wait"))
            await both.servicer.entered.wait()
            calls = [call]
            del call
            thread = threading.Thread(target=calls.clear)
            thread.start()
            await asyncio.to_thread(thread.join)
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)]

    run(scenario)


def test_connectivity():
    async def scenario():
        states = grpc.ChannelConnectivity
        async with pair() as both:
            assert both.channel.get_state() is states.IDLE
            change = asyncio.create_task(both.channel.wait_for_state_change(states.IDLE))
            await asyncio.sleep(0)
            await both.channel.channel_ready()
            await change
            assert both.channel.get_state() is states.READY
            await both.stub.Unary(Note()).wait_for_connection()
            async with tollfree.aio.insecure_channel(both.address) as fresh:
                for begin in (lambda stub: stub.Unary(Note(text="wait")), lambda stub: stub.Chat()):
                    call = begin(pb_grpc.AioEchoStub(fresh))
                    await call.wait_for_connection()
                    assert not call.done()
                    call.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await call.wait_for_connection()
            left = asyncio.create_task(both.channel.wait_for_state_change(states.READY))
            await asyncio.sleep(0)
            await both.server.stop(None)
            await left
            assert both.channel.get_state() is not states.READY
            closed = asyncio.create_task(both.channel.wait_for_state_change(both.channel.get_state()))
            await asyncio.sleep(0)
            await both.channel.close()
            await closed
            with pytest.raises(grpc.aio.UsageError):
                await both.channel.channel_ready()

    run(scenario)


def test_waiting_for_a_server_that_comes_later():
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            address = f"shm://{directory}/s.sock"
            async with tollfree.aio.insecure_channel(address) as channel:
                stub = pb_grpc.AioEchoStub(channel)
                error = await error_of(stub.Unary(Note()))
                assert error.code() is grpc.StatusCode.UNAVAILABLE and "s.sock" in error.details()
                call = stub.Unary(Note())
                with pytest.raises(grpc.aio.AioRpcError):
                    await call.wait_for_connection()
                error = await error_of(stub.Unary(Note(), wait_for_ready=True, timeout=0.05))
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                calls = [stub.Unary(Note(count=1), wait_for_ready=True), stub.Upload([Note(count=2)], wait_for_ready=True)]
                connected = asyncio.create_task(calls[0].wait_for_connection())
                await asyncio.sleep(0.02)
                for _ in range(2):
                    # And again after a restart.
                    server = tollfree.aio.server()
                    pb_grpc.add_AioEchoServicer_to_server(AioEcho(), server)
                    server.add_insecure_port(address)
                    await server.start()
                    assert [(await call).count for call in calls] == [2, 2]
                    await connected
                    calls = [stub.Unary(Note(count=1), wait_for_ready=True)] * 2
                    await calls[0]
                    await server.stop(None)
                    calls = [stub.Unary(Note(count=1), wait_for_ready=True), stub.Upload([Note(count=2)], wait_for_ready=True)]
                for call in calls:
                    call.cancel()

    run(scenario)


@pytest.mark.parametrize("by_thread", [False, True])
def test_ends_that_rest_take_no_turns(by_thread, monkeypatch):
    entered, may_end = threading.Event(), threading.Event()

    class Sync(pb_grpc.AioEchoServicer):
        def Unary(self, request, context):
            entered.set()
            may_end.wait()

    async def scenario():
        async with pair(Sync() if by_thread else AioEcho()) as both:
            waiting = both.stub.Unary(Note(text="wait"))
            await until(lambda: entered.is_set() if by_thread else both.servicer.entered.is_set())
            turns = 0
            turn = _bridge.Bridge._turn

            def counted(bridge):
                nonlocal turns
                turns += 1
                turn(bridge)

            monkeypatch.setattr(_bridge.Bridge, "_turn", counted)
            await asyncio.sleep(0.3)
            before = turns
            await asyncio.sleep(1)
            assert turns - before <= 20, "a turn needs a reason"
            waiting.cancel()
            may_end.set()

    run(scenario)


def test_a_server_that_is_killed():
    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            address = f"shm://{directory}/s.sock"
            process = program(address, "await server.wait_for_termination()")
            async with tollfree.aio.insecure_channel(address) as channel:
                stub = pb_grpc.AioEchoStub(channel)
                stream = stub.Download(Note(text="wait", count=9))
                assert [(await stream.read()).count for _ in range(3)] == [0, 1, 2]
                calls = [asyncio.ensure_future(error_of(stub.Unary(Note(text="wait")))) for _ in range(10)]
                await asyncio.sleep(0.05)
                process.kill()
                await asyncio.to_thread(process.communicate)
                for call in calls:
                    assert (await call).code() is grpc.StatusCode.UNAVAILABLE
                assert (await error_of(stream.read())).code() is grpc.StatusCode.UNAVAILABLE
                process = program(address, "await server.wait_for_termination()")
                assert (await stub.Unary(Note(count=1), wait_for_ready=True)).count == 2
                process.kill()
                await asyncio.to_thread(process.communicate)

    run(scenario)


def test_a_client_that_is_killed():
    async def scenario():
        async with pair() as both:
            client = f"channel = tollfree.aio.insecure_channel({both.address!r}); stub = pb_grpc.AioEchoStub(channel); "
            client += "calls = [stub.Unary(Note(text='wait')) for _ in range(5)]; await asyncio.sleep(1000)"
            process = await asyncio.to_thread(program, both.address.replace("echo", "own"), client)
            await until(lambda: len(both.server._calls) == 5)
            process.kill()
            await asyncio.to_thread(process.communicate)
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)] * 5

    run(scenario)


def test_a_deadline_of_a_client_that_is_stopped():
    async def scenario():
        async with pair() as both:
            client = f"channel = tollfree.aio.insecure_channel({both.address!r}); stub = pb_grpc.AioEchoStub(channel); "
            client += "call = stub.Unary(Note(text='wait'), timeout=1); await asyncio.sleep(1000)"
            process = await asyncio.to_thread(program, both.address.replace("echo", "own"), client)
            await both.servicer.entered.wait()
            process.send_signal(signal.SIGSTOP)
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)]
            process.kill()
            await asyncio.to_thread(process.communicate)

    run(scenario)


@pytest.mark.parametrize("way", ["INT", "exit"])
def test_a_program_that_ends_in_the_middle(way):
    """The interpreter ends cleanly, with calls under way at both ends."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"shm://{directory}/s.sock"
        then = f"channel = tollfree.aio.insecure_channel({address!r}); stub = pb_grpc.AioEchoStub(channel); "
        then += "calls = [stub.Unary(Note(text='wait')), stub.Chat()]; await asyncio.sleep(0.1); print('under way', flush=True); "
        then += "await asyncio.sleep(1000)" if way == "INT" else "sys.exit(7)"
        process = program(address, then)
        assert process.stdout.readline() == "under way\n"
        if way == "INT":
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-2 if way == "INT" else 7), errors
        assert "Exception ignored" not in errors and "panicked" not in errors, errors


def test_a_child_of_fork_is_told_to_make_a_channel_of_its_own():
    async def scenario():
        async with pair() as both:
            await both.stub.Unary(Note())
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                # The parent's asyncio loop is none that may be run here.
                words = []
                try:
                    both.stub.Unary(Note())
                except BaseException as error:
                    words.append(f"{type(error).__name__}: {error}")
                asyncio._set_running_loop(None)

                async def own():
                    async with tollfree.aio.insecure_channel(both.address) as channel:
                        return (await pb_grpc.AioEchoStub(channel).Unary(Note(count=41))).count

                try:
                    words.append(str(asyncio.run(own())))
                except BaseException as error:
                    words.append(f"{type(error).__name__}: {error}")
                os.write(writing, "\n".join(words).encode())
                os._exit(0)
            os.close(writing)
            while not (await asyncio.to_thread(os.waitpid, child, os.WNOHANG))[0]:
                await asyncio.sleep(0.01)
            refused, answered = os.read(reading, 10_000).decode().split("\n")
            os.close(reading)
            assert "forked" in refused and "RuntimeError" in refused
            assert answered == "42"
            assert (await both.stub.Unary(Note(count=1))).count == 2, "the parent's goes on"

    run(scenario)
