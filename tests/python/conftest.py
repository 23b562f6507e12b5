# SPDX-License-Identifier: Apache-2.0
"""Fixtures of these tests: python/gemmd from the sources, the libgemmd.so of the build, and a real daemon
on the CPU, started by the fixtures of tests/integration/conftest.py."""
import contextlib
import importlib.util
import os
import pathlib
import socket
import sys
import tempfile
import threading

import msgpack
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
LIB = os.environ.get("GEMMD_LIB", str(BUILD / "client" / "libgemmd.so"))
PYTHON = ROOT / "python"
SANITIZED = "sanitize" in os.environ.get("GEMMD_BUILD_KIND", "")

sys.path[:0] = [str(PYTHON), str(ROOT / "tests" / "bench")]
os.environ["GEMMD_LIBRARY"] = LIB
# Kernels that this process compiles go into a cache for this process alone.
_cache = tempfile.TemporaryDirectory(prefix="gemmd-cache-")
os.environ.update(GEMMD_SYSTEM="0", XDG_CACHE_HOME=_cache.name)

_spec = importlib.util.spec_from_file_location("gemmd_integration",
                                               ROOT / "tests" / "integration" / "conftest.py")
integration = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(integration)
daemon, folder = integration.daemon, integration.folder


def pytest_collection_modifyitems(items):
    """Skips tests that load libgemmd in a build with sanitizers: this Python cannot load a library with them."""
    for item in items:
        if (not LIB or SANITIZED) and "no_library" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason="this build has no libgemmd.so that a Python "
                                                    "without sanitizers can load"))


def pytest_configure(config):
    config.addinivalue_line("markers", "no_library: needs no libgemmd.so")


def environment(**more):
    """Environment of a Python program of the tests."""
    env = {**os.environ, "PYTHONPATH": str(PYTHON), "GEMMD_LIBRARY": LIB, **more}
    return {name: str(value) for name, value in env.items()}


@pytest.fixture(scope="session")
def shared_cache():
    """A cache directory in which the daemon and this process find each other's compiled kernels."""
    path = pathlib.Path(_cache.name) / "gemmd"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@pytest.fixture(autouse=True)
def own_settings():
    """The settings of gemmd.torch.configure() end with the test that makes them."""
    module = sys.modules.get("gemmd.torch.plans")
    before = dict(vars(module.plans.settings)) if module else {}
    yield
    if module := sys.modules.get("gemmd.torch.plans"):
        module.configure(**(before or vars(module.Settings())))


@pytest.fixture
def cpu(daemon):
    """A daemon of the CPU."""
    return daemon("cpu")


@pytest.fixture
def one_rank():
    """PyTorch's device mesh of this process alone."""
    dist = pytest.importorskip("torch").distributed
    if not dist.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture
def worst_memory():
    """PyTorch fills new tensors with NaN."""
    torch = pytest.importorskip("torch")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


class Refused(Exception):
    """Raised by strange_daemon()'s `result`: the daemon answers with the error of this name and code."""


def strange_daemon(path, result):
    """A daemon that answers every request with result(method, params), refuses it if that raises Refused, and hangs up
    on OSError. Returns the listening socket, which the caller closes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer(request, method, params):
        try:
            return [1, request, None, result(method, params)]
        except Refused as e:
            name, code = e.args
            return [1, request, {"code": code, "name": name, "message": f"{name}, it said",
                                 "survives": True}, None]

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    def serve_one(connection):
        unpacker = msgpack.Unpacker()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                unpacker.feed(data)
                for _, request, method, params in unpacker:
                    connection.sendall(msgpack.packb(answer(request, method, params)))

    threading.Thread(target=serve, daemon=True).start()
    return listener


def pytest_sessionfinish(session, exitstatus):
    """A file that is skipped as a whole (no PyTorch) is a skipped test for meson, not a failed
    one."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = 77
