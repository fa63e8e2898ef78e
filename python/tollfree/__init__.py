"""gRPC over shared memory, under grpcio's names.

`insecure_channel("shm:///run/app/greeter.sock")` is a `grpc.Channel` for generated stubs as they are, `server(pool)` a
`grpc.Server` for generated servicers; `tollfree.aio` has both for asyncio. The guide is `docs/guide/python.md` of the project.
"""

from tollfree._channel import insecure_channel
from tollfree._server import inline, server

__all__ = ["inline", "insecure_channel", "server"]
