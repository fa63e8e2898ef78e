"""A server's calls: which handler takes them, in a task or a thread, and what goes back."""

import asyncio
import inspect
import logging

import grpc
from grpc.aio import EOF, AbortError

from tollfree import _handling
from tollfree.aio._context import Failed, SyncContext

_LOGGER = logging.getLogger("tollfree")


class Methods(_handling.Methods):
    """Handlers by path, behind asyncio's interceptors."""

    def __init__(self, generic_handlers, interceptors):
        super().__init__(generic_handlers, interceptors)
        wrong = [each for each in self._interceptors if not isinstance(each, grpc.aio.ServerInterceptor)]
        if wrong:
            raise ValueError(f"interceptors have to be grpc.aio.ServerInterceptor; these are not: {wrong}")

    async def _intercepted(self, interceptors, details):
        if not interceptors:
            return self._find(details)

        async def continuation(details):
            return await self._intercepted(interceptors[1:], details)

        return await interceptors[0].intercept_service(continuation, details)

    async def find(self, context):
        """The handler of a call, or None; interceptors and generic handlers may raise."""
        if not self._interceptors:
            handler = self._registered.get(context.path)
            return handler if handler is not None else self._find(_handling.Details(context.path, context.invocation_metadata()))
        return await self._intercepted(self._interceptors, _handling.Details(context.path, context.invocation_metadata()))


def _is_async(handler):
    return inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)


async def handle(server, context):
    """Handles a call: what its task does."""
    try:
        try:
            await _handle(server, context)
        except AbortError as error:
            if error is not context.abortion:
                raise
        else:
            if context.abortion is not None:
                _LOGGER.error("a handler of %s went on after it had aborted its call", context.path)
            elif not context.state.is_over:
                context.finish()
    except asyncio.CancelledError:
        # By the client or a deadline; or by the program, in which case the client has to hear of it.
        context.fail(grpc.StatusCode.CANCELLED, "the handler was cancelled")
        raise
    except Failed as error:
        context.fail(error.code, error.details)
    except Exception as error:
        if context.state.is_over:
            _LOGGER.debug("a handler of %s has failed after its call was over", context.path, exc_info=error)
            return
        _LOGGER.exception("Unexpected %s raised by servicer method %s", type(error).__name__, context.path)
        code = grpc.StatusCode.UNKNOWN if context.succeeds() else context.code()
        context.fail(code, f"Unexpected {type(error)}: {error}")
    finally:
        if not context.state.is_over:
            context.state.abort(grpc.StatusCode.UNKNOWN, "the handler's program ends")


async def _handle(server, context):
    handler = await server.methods.find(context)
    if handler is None:
        raise Failed(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    context.is_for(handler)
    if handler.request_streaming:
        behavior = handler.stream_stream if handler.response_streaming else handler.stream_unary
    else:
        behavior = handler.unary_stream if handler.response_streaming else handler.unary_unary
    run = _stream if handler.response_streaming else _unary
    if _is_async(behavior):
        request = _Requests(context) if handler.request_streaming else await _only(context)
        return await run(context, behavior, request)
    sync = SyncContext(context)
    request = _sync_requests(sync) if handler.request_streaming else await _only(context)
    run = _sync_stream if handler.response_streaming else _sync_unary
    bridge = context.state.bridge
    bridge.thread_count += 1
    try:
        await run(server, context, sync, behavior, request)
    finally:
        bridge.thread_count -= 1
        for callback in sync.callbacks:
            context.add_done_callback(lambda _, callback=callback: callback())


async def _only(context):
    """The request of a method that takes one."""
    request = await context.read()
    if request is EOF:
        raise Failed(grpc.StatusCode.INTERNAL, "the call has no request")
    return request


class _Requests:
    """The requests of a stream, as an async handler reads them."""

    def __init__(self, context):
        self._context = context

    def __aiter__(self):
        return self

    async def __anext__(self):
        request = await self._context.read()
        if request is EOF:
            raise StopAsyncIteration
        return request


def _sync_requests(sync):
    """The same in a thread."""
    while (request := sync.read()) is not EOF:
        yield request


def _answered(context, response):
    """A unary answer goes out, with the status."""
    if context.abortion is not None or context.state.is_over:
        return
    if not context.succeeds():
        # With another code goes no message.
        return context.finish()
    data, compressed = context.response(response)
    context.finish(context.headers(), data, compressed)


async def _unary(context, behavior, request):
    _answered(context, await behavior(request, context))


async def _stream(context, behavior, request):
    if not inspect.isasyncgenfunction(behavior):
        # It writes by its context.
        await behavior(request, context)
        return
    responses = behavior(request, context)
    try:
        async for response in responses:
            await context.write(response)
    finally:
        # Where the call has ended before, the handler's `finally` runs now.
        await responses.aclose()


async def _sync_unary(server, context, sync, behavior, request):
    response = await context.state.bridge.loop.run_in_executor(server.pool, behavior, request, sync)
    _answered(context, response)


async def _sync_stream(server, context, sync, behavior, request):
    def run():
        responses = behavior(request, sync)
        for response in responses or ():
            sync.write(response)

    await context.state.bridge.loop.run_in_executor(server.pool, run)
