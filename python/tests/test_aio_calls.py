"""Calls of asyncio channels to asyncio servers, by generated stubs as they are."""

import asyncio

import grpc
import pytest
from aio_support import Note, error_of, pair, run


def test_all_four_kinds():
    async def scenario():
        async with pair() as both:
            assert await both.stub.Unary(Note(text="hello", count=1)) == Note(text="hello", count=2)
            assert [each.count async for each in both.stub.Download(Note(count=100))] == list(range(100))

            async def requests():
                for count in range(1, 4):
                    yield Note(count=count)

            assert (await both.stub.Upload(requests())).count == 6
            assert (await both.stub.Upload([Note(count=5)] * 200)).count == 1000
            assert [each.count async for each in both.stub.Chat(requests())] == [2, 3, 4]

    run(scenario)
