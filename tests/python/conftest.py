# SPDX-License-Identifier: Apache-2.0
"""python/gemmd from the sources, the libgemmd.so of the build, and a real daemon on the CPU: the
one of tests/integration/conftest.py, whose fixtures these tests use."""
import importlib.util
import os
import pathlib
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
LIB = os.environ.get("GEMMD_LIB", str(BUILD / "client" / "libgemmd.so"))
PYTHON = ROOT / "python"
SANITIZED = "sanitize" in os.environ.get("GEMMD_BUILD_KIND", "")

sys.path[:0] = [str(PYTHON), str(ROOT / "tests" / "bench")]
os.environ["GEMMD_LIBRARY"] = LIB
# What is compiled in this process goes into a cache of its own.
_cache = tempfile.TemporaryDirectory(prefix="gemmd-cache-")
os.environ.update(GEMMD_SYSTEM="0", XDG_CACHE_HOME=_cache.name)

_spec = importlib.util.spec_from_file_location("gemmd_integration",
                                               ROOT / "tests" / "integration" / "conftest.py")
integration = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(integration)
daemon, folder = integration.daemon, integration.folder


def pytest_collection_modifyitems(items):
    """A Python without sanitizers cannot load a library with them."""
    for item in items:
        if (not LIB or SANITIZED) and "no_library" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason="this build has no libgemmd.so that a Python "
                                                    "without sanitizers can load"))


def pytest_configure(config):
    config.addinivalue_line("markers", "no_library: needs no libgemmd.so")


def environment(**more):
    """Of a Python program of the tests' own."""
    env = {**os.environ, "PYTHONPATH": str(PYTHON), "GEMMD_LIBRARY": LIB, **more}
    return {name: str(value) for name, value in env.items()}


@pytest.fixture(scope="session")
def shared_cache():
    """What a daemon compiles, this process finds, and the other way round."""
    path = pathlib.Path(_cache.name) / "gemmd"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@pytest.fixture
def cpu(daemon):
    """A daemon of the CPU."""
    return daemon("cpu")


def pytest_sessionfinish(session, exitstatus):
    """A file that is skipped as a whole (no PyTorch) is a skipped test for meson, not a failed
    one."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = 77
