"""Python stubs of the control API, made from the schemas when first asked for."""
import functools
import importlib
import pathlib
import subprocess
import sys
import tempfile

import grpc

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROTOS = ("spillway/v1/control.proto", "grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto",
          "grpc/reflection/v1alpha/reflection.proto")


@functools.cache
def _directory():
    # Kept for the life of the process: the modules are imported from it.
    directory = tempfile.TemporaryDirectory(prefix="spw-stubs-")
    subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={directory.name}",
                    f"--grpc_python_out={directory.name}",
                    "--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin", *PROTOS], check=True)
    # The schemas' own "grpc/" would hide the grpc package: its parts are laid beside that package's.
    grpc.__path__.append(str(pathlib.Path(directory.name) / "grpc"))
    sys.path.append(directory.name)
    return directory


def stubs(name):
    """stubs("spillway.v1.control") -> (messages, services)"""
    _directory()
    return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")
