"""Stubs of `echo.proto`, generated once, and servers with clients for tests."""

import importlib.resources
import pathlib
import sys
import tempfile

_HERE = pathlib.Path(__file__).parent
_GENERATED = tempfile.mkdtemp(prefix="tollfree-stubs-")


def _generate():
    from grpc_tools import protoc

    well_known = str(importlib.resources.files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{_HERE}", f"-I{well_known}", f"--python_out={_GENERATED}", f"--grpc_python_out={_GENERATED}"]
    assert protoc.main([*arguments, "echo.proto"]) == 0
    sys.path.insert(0, _GENERATED)


_generate()
sys.path.insert(0, str(_HERE))
