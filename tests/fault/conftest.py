# SPDX-License-Identifier: Apache-2.0
"""The harness of tests/integration, and fake runners."""
import importlib.util
import pathlib
import sys

import pytest

_path = pathlib.Path(__file__).parent.parent / "integration" / "conftest.py"
_spec = importlib.util.spec_from_file_location("gemmd_harness", _path)
harness = importlib.util.module_from_spec(_spec)
sys.modules["gemmd_harness"] = harness
_spec.loader.exec_module(harness)

for _name in ("daemon", "daemon_of_module", "folder", "shared_cache", "Daemon", "Client", "RpcError", "connected",
              "eventually", "gemm", "runs", "RUNNER", "GEMMD", "GEMMCTL", "SYNTHETIC", "PATIENCE"):
    globals()[_name] = getattr(harness, _name)

RUNNER_BODY = """#!{python}
# answers --probe like the real one, and then behaves like nothing good
import os, signal, sys, time
import msgpack
if "--probe" in sys.argv:
    os.execv({runner!r}, sys.argv)
BUILD = {build!r}
FD = int(sys.argv[sys.argv.index("--fd") + 1])
unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)

def say(*message):
    os.write(FD, msgpack.packb(list(message)))

def hello():
    say(2, "hello", {{"build": BUILD, "pid": os.getpid(), "driver": "", "class": ""}})

def order():
    while True:
        for message in unpacker:
            if message[0] == 0:
                return message[1], message[3]
        data = os.read(FD, 65536)
        if not data:
            sys.exit(0)
        unpacker.feed(data)

def attempt(o, stage="time", limit_ms=300, **more):
    say(2, "attempt", {{"job": o["job"], "stage": stage, "limit_ms": limit_ms, **more}})

{body}
"""


@pytest.fixture
def fake(daemon, folder):
    """fake(body, options=[...]) -> a daemon with a known answer, and a runner that executes `body`."""

    def make(body, options=()):
        d = daemon()
        hello = d.call("hello", version=1)
        d.known = d.call("get", problem=harness.gemm(n=1024), budget=4)
        assert d.stop() == 0
        path = folder / "runner"
        path.write_text(RUNNER_BODY.format(python=sys.executable, runner=str(harness.RUNNER),
                                           build=hello["build"], body=body))
        path.chmod(0o755)
        d.options += ["--runner", str(path), *options]
        return d.start()

    return make
