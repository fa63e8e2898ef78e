"""Cancelling calls of asyncio channels at each step, and losing what they need."""

import asyncio
import gc

import grpc
import pytest
from aio_support import AioEcho, Note, pair, run, until


def cancelled(exception=asyncio.CancelledError):
    return pytest.raises(exception)


KINDS = ["Unary", "Download", "Upload", "Chat"]


def begin(both, kind):
    """A call whose handler waits."""
    note = Note(text="wait", count=9)
    match kind:
        case "Unary":
            return both.stub.Unary(note)
        case "Download":
            return both.stub.Download(note)
        case "Upload":
            return both.stub.Upload([note])
        case "Chat":
            return both.stub.Chat([note])


async def end_of(call):
    """Waits for what a caller waits for."""
    if isinstance(call, (grpc.aio.UnaryStreamCall, grpc.aio.StreamStreamCall)):
        return [each async for each in call]
    return await call


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_cancelled_by_itself(kind):
    async def scenario():
        async with pair() as both:
            # Before anything of it has gone out.
            call = begin(both, kind)
            assert call.cancel() and not call.cancel()
            with cancelled():
                await end_of(call)
            assert call.cancelled() and call.done() and await call.code() is grpc.StatusCode.CANCELLED
            assert await call.details() == "Locally cancelled by application!"
            await both.no_calls()
            # While its handler waits.
            both.servicer.entered.clear()
            both.servicer.endings.clear()
            call = begin(both, kind)
            task = asyncio.ensure_future(end_of(call))
            await both.servicer.entered.wait()
            await asyncio.sleep(0.01)
            assert call.cancel()
            with cancelled():
                await task
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)]
            # When it is over.
            both.servicer.released.set()
            call = begin(both, kind)
            await end_of(call)
            assert await call.code() is grpc.StatusCode.OK
            assert not call.cancel() and not call.cancelled()

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_cancelled_with_its_task(kind):
    async def scenario():
        async with pair() as both:
            call = begin(both, kind)
            task = asyncio.create_task(end_of(call))
            await both.servicer.entered.wait()
            await asyncio.sleep(0.01)
            task.cancel()
            with cancelled():
                await task
            assert call.cancelled()
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)]
            # And by a timeout of the program's.
            with cancelled(asyncio.TimeoutError):
                await asyncio.wait_for(end_of(begin(both, kind)), 0.05)
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)] * 2

    run(scenario)


def test_a_write_is_cancelled_with_its_task():
    async def scenario():
        async with pair() as both:
            call = both.stub.Upload()

            async def write():
                await call.write(Note(text="wait"))
                while True:
                    await call.write(Note(data=bytes(100_000)))

            task = asyncio.create_task(write())
            await both.servicer.entered.wait()
            await asyncio.sleep(0.05)
            task.cancel()
            with cancelled():
                await task
            assert call.cancelled()

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_nobody_has_is_cancelled(kind):
    async def scenario():
        async with pair() as both:
            call = begin(both, kind)
            await both.servicer.entered.wait()
            if kind == "Download":
                await call.read()
            await asyncio.sleep(0.01)
            del call
            gc.collect()
            await both.no_calls()
            assert both.servicer.endings == [("CancelledError", True)]

    run(scenario)


def test_an_answer_that_ends_before_its_requests():
    async def scenario():
        async with pair() as both:
            call = both.stub.Upload()
            await call.write(Note(text="enough"))
            assert (await call).count == 0
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(Note())
            await call.done_writing()

            async def requests():
                yield Note(text="enough")
                while True:
                    yield Note()
                    await asyncio.sleep(0)

            assert (await both.stub.Upload(requests())).count == 0

    run(scenario)


def test_a_closed_channel_ends_its_calls():
    async def scenario():
        async with pair() as both:
            call = begin(both, "Unary")
            task = asyncio.create_task(end_of(call))
            await both.servicer.entered.wait()
            await both.channel.close()
            with cancelled():
                await task
            with pytest.raises(grpc.aio.UsageError, match="closed"):
                both.stub.Unary(Note())
            assert both.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN

    run(scenario)


def test_a_channel_gives_calls_time_to_end():
    async def scenario():
        async with pair() as both:
            quick, slow = begin(both, "Unary"), both.stub.Download(Note(text="wait", count=9))
            await both.servicer.entered.wait()
            asyncio.get_running_loop().call_later(0.05, both.servicer.released.set)
            task = asyncio.create_task(both.channel.close(30))
            assert (await quick).count == 10
            assert len([each async for each in slow]) == 9
            await task
        async with pair() as both:
            call = begin(both, "Unary")
            await both.servicer.entered.wait()
            await both.channel.close(0.05)
            assert call.cancelled()
            with pytest.raises(ValueError):
                await both.channel.close(-1)

    run(scenario)


def test_a_cancelled_handler_task_is_told_to_its_client():
    async def scenario():
        class Own(AioEcho):
            async def Unary(self, request, context):
                asyncio.current_task().cancel()
                await asyncio.sleep(1)

        async with pair(Own()) as both:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await both.stub.Unary(Note())
            assert caught.value.code() is grpc.StatusCode.CANCELLED

    run(scenario)


def test_a_handler_that_goes_on_after_its_call_was_cancelled():
    async def scenario():
        class Stubborn(AioEcho):
            async def Download(self, request, context):
                self.entered.set()
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    assert context.cancelled() and context.done()
                    with pytest.raises(grpc.aio.UsageError):
                        await context.write(Note())
                    self.endings.append("refused")
                yield Note()

        async with pair(Stubborn()) as both:
            call = both.stub.Download(Note())
            await both.servicer.entered.wait()
            call.cancel()
            await until(lambda: both.servicer.endings == ["refused"])

    run(scenario)
