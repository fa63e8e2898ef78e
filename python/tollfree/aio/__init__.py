"""Tollfree for asyncio, under grpcio's names.

`insecure_channel("shm:///run/app/greeter.sock")` is a `grpc.aio.Channel` for generated stubs as they are, `server()` a `grpc.aio.Server`
for generated servicers. Both work under asyncio's own loop and under uvloop.
"""

from tollfree.aio._channel import insecure_channel
from tollfree.aio._server import server

__all__ = ["insecure_channel", "server"]
