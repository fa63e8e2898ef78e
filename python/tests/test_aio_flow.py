"""Many calls at once, and ends that are slower than others."""

import asyncio
import tempfile

import grpc
import pytest
from aio_support import AioEcho, Note, pair, pb_grpc, program, run, until

import tollfree.aio
from tollfree.aio import _bridge


def test_two_hundred_calls_at_once():
    async def scenario():
        async with pair() as both:

            async def one(number):
                match number % 4:
                    case 0:
                        return (await both.stub.Unary(Note(count=number))).count == number + 1
                    case 1:
                        return len([each async for each in both.stub.Download(Note(count=number))]) == number
                    case 2:
                        return (await both.stub.Upload([Note(count=1)] * number)).count == number
                    case 3:
                        return [each.count async for each in both.stub.Chat([Note(count=number)] * 5)] == [number + 1] * 5

            assert all(await asyncio.gather(*(one(number) for number in range(200))))
            # Begun before any is awaited.
            calls = [both.stub.Unary(Note(count=number)) for number in range(200)]
            assert [(await call).count for call in calls] == list(range(1, 201))

    run(scenario)


def test_all_handlers_are_under_way_at_once():
    async def scenario():
        async with pair() as both:
            calls = [asyncio.ensure_future(each) for each in [_awaited(both.stub.Unary(Note(text="wait"))) for _ in range(100)]]
            await until(lambda: both.call_counts() == (100, 100))
            both.servicer.released.set()
            assert len(await asyncio.gather(*calls)) == 100

    run(scenario)


async def _awaited(call):
    return await call


DATA = bytes(10_000)
# What may lie between a writer and a reader that does not read: 16 messages that are not on their way, or 256 KiB of them, credit of the
# session, and 64 that wait to be read, or 256 KiB of them.
BOUND = 400


def test_a_slow_reader_of_answers_holds_up_its_own_call_only():
    async def scenario():
        async with pair() as both:
            slow = both.stub.Download(Note(count=5000, data=DATA))
            assert (await slow.read()).count == 0
            sent = -1
            while sent != both.servicer.sent:
                sent = both.servicer.sent
                # Others go on meanwhile.
                for count in range(100):
                    assert (await both.stub.Unary(Note(count=count))).count == count + 1
                await asyncio.sleep(0.05)
            assert 1 < sent < BOUND, "the handler waits for its reader"
            assert len(slow._state.messages) < BOUND
            quick = both.stub.Download(Note(count=300, data=DATA))
            assert len([each async for each in quick]) == 300
            counts = []
            while (answer := await slow.read()) is not grpc.aio.EOF:
                counts.append(answer.count)
            assert counts == list(range(1, 5000))

    run(scenario)


def test_a_slow_reader_of_requests_holds_up_its_own_call_only():
    async def scenario():
        async with pair() as both:
            written = 0

            async def requests():
                nonlocal written
                yield Note(text="wait")
                for _ in range(3000):
                    written += 1
                    yield Note(count=1, data=DATA)

            slow = both.stub.Upload(requests())
            await both.servicer.entered.wait()
            seen = -1
            while seen != written:
                seen = written
                for count in range(100):
                    assert (await both.stub.Unary(Note(count=count))).count == count + 1
                await asyncio.sleep(0.05)
            assert 1 < seen < BOUND, "the writer waits for its reader"
            assert (await both.stub.Upload([Note(count=1, data=DATA)] * 300)).count == 300
            both.servicer.released.set()
            assert (await slow).count == 3000

    run(scenario)


@pytest.mark.parametrize("kind", ["unary", "read", "write"])
def test_a_task_that_never_has_to_wait_gives_way_to_others(kind, monkeypatch):
    # Each time, and not as often as a time says.
    monkeypatch.setattr(_bridge, "TURN_EVERY", 0.0)

    async def scenario():
        with tempfile.TemporaryDirectory() as directory:
            address = f"shm://{directory}/s.sock"
            process = await asyncio.to_thread(program, address, "await server.wait_for_termination()")
            turns = 0
            is_over = False

            async def other():
                nonlocal turns
                while not is_over:
                    turns += 1
                    await asyncio.sleep(0)

            def look(bridge):
                # What comes is always there in time.
                while not (events := bridge.native.next(0.0, 20e-6)):
                    pass
                bridge._deliver(events)
                return True

            async with tollfree.aio.insecure_channel(address) as channel:
                stub = pb_grpc.AioEchoStub(channel)
                await channel.channel_ready()
                task = asyncio.create_task(other())
                match kind:
                    case "unary":
                        monkeypatch.setattr(_bridge.Bridge, "look", look)
                        for _ in range(100):
                            await stub.Unary(Note())
                    case "read":
                        call = stub.Download(Note(count=100))
                        await until(lambda: len(call._state.messages) >= 60)
                        turns = 0
                        for _ in range(60):
                            await call.read()
                        call.cancel()
                    case "write":
                        call = stub.Upload()
                        for _ in range(100):
                            await call.write(Note(count=1))
                        await call.done_writing()
                        assert (await call).count == 100
                monkeypatch.undo()
                is_over = True
                await task
                assert turns >= (50 if kind == "read" else 90)
            process.kill()
            await asyncio.to_thread(process.communicate)

    run(scenario)


@pytest.mark.parametrize("kind", ["unary", "read", "write"])
def test_a_task_that_calls_without_end_gives_way_to_others(kind):
    async def scenario():
        async with pair() as both:
            turns = 0
            is_over = False

            async def other():
                nonlocal turns
                while not is_over:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(20):
                match kind:
                    case "unary":
                        for _ in range(20):
                            await both.stub.Unary(Note())
                    case "read":
                        async for _ in both.stub.Download(Note(count=500)):
                            pass
                    case "write":
                        call = both.stub.Upload()
                        for _ in range(500):
                            await call.write(Note(count=1))
                        await call.done_writing()
                        assert (await call).count == 500
            is_over = True
            await task
            assert turns > 100

    run(scenario)


def test_several_tasks_read_one_stream(monkeypatch):
    monkeypatch.setattr(_bridge, "TURN_EVERY", 0.0)

    class Shares(AioEcho):
        async def Upload(self, request_iterator, context):
            async def part():
                return [request.count async for request in request_iterator]

            parts = await asyncio.gather(*(part() for _ in range(5)))
            return Note(count=sum(sum(each) for each in parts))

    async def scenario():
        async with pair(Shares()) as both:
            call = both.stub.Download(Note(count=500))

            async def part():
                counts = []
                while (answer := await call.read()) is not grpc.aio.EOF:
                    counts.append(answer.count)
                return counts

            parts = await asyncio.gather(*(part() for _ in range(5)))
            assert sorted(sum(parts, [])) == list(range(500))
            assert (await both.stub.Upload([Note(count=1)] * 500)).count == 500

    run(scenario)


def test_ten_thousand_messages_of_a_stream():
    class Counts(AioEcho):
        async def Chat(self, request_iterator, context):
            total = 0
            async for request in request_iterator:
                total += request.count
                yield Note(count=total)

    async def scenario():
        async with pair(Counts()) as both:
            answers = [each.count async for each in both.stub.Chat([Note(count=1)] * 10_000)]
            assert answers == list(range(1, 10_001))

    run(scenario)
