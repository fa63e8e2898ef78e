"""gRPC over shared memory, under grpcio's names.

`insecure_channel("shm:///run/app/greeter.sock")` is a `grpc.Channel` for generated stubs as they are, `server(pool)` a
`grpc.Server` for generated servicers; `tollfree.aio` has both for asyncio. The guide is `docs/guide/python.md` of the project.
"""

import importlib
import sysconfig

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("Tollfree does not run in free-threaded builds of Python yet: use one with the interpreter's lock")

from tollfree._arrays import View, message, views  # noqa: E402
from tollfree._channel import insecure_channel  # noqa: E402
from tollfree._native import Buffer, Pool  # noqa: E402
from tollfree._server import inline, server  # noqa: E402

__all__ = ["Buffer", "Pool", "View", "aio", "flat", "inline", "insecure_channel", "message", "server", "views"]


def __getattr__(name):
    # As `grpc.aio` comes with `grpc`; who does not name them does not load them.
    if name in ("aio", "flat"):
        return importlib.import_module(f"tollfree.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
