"""Stubs of `echo.proto`, generated once, and servers with clients for tests."""

import gc
import importlib.resources
import pathlib
import signal
import sys
import tempfile

_HERE = pathlib.Path(__file__).parent
_GENERATED = tempfile.mkdtemp(prefix="tollfree-stubs-")


# A shell that runs this in the background has it ignored, here and in all programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def generate(root, files):
    """Generates stubs of files under a directory, and makes them known."""
    from grpc_tools import protoc

    well_known = str(importlib.resources.files("grpc_tools") / "_proto")
    names = [str(path.relative_to(root)) for path in sorted(root.glob(files))]
    assert names, f"no {files} under {root}"
    arguments = ["protoc", f"-I{root}", f"-I{well_known}", f"--python_out={_GENERATED}", f"--grpc_python_out={_GENERATED}"]
    assert protoc.main([*arguments, *names]) == 0
    # `grpc` is a package of grpcio's: what is generated beneath it is found beside.
    import grpc

    beneath = pathlib.Path(_GENERATED, "grpc")
    if beneath.is_dir() and str(beneath) not in grpc.__path__:
        grpc.__path__.append(str(beneath))


sys.path.insert(0, _GENERATED)
sys.path.insert(0, str(_HERE))
generate(_HERE, "echo.proto")


def pytest_collection_finish(session):
    """What was loaded stays: it need not be looked through each time that a test counts what is left."""
    gc.collect()
    gc.freeze()
