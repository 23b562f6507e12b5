# SPDX-License-Identifier: Apache-2.0
"""gemmctl: the daemon itself: status, version, start."""
import subprocess

from fake_gemmd import GEMMCTL, ctl, ctl_json, environment


def test_status(fake):
    fake.answers["status"] = {
        "build": "b", "pid": 12, "uptime_s": 90061, "device": {"name": "H200", "class": "c"},
        "jobs": {"running": 0, "done": 3}, "runner": {"state": "none", "pid": None}, "job": None,
        "store": {"file_bytes": 123456, "unsaved": 0}, "errors": {"invalid": 2}, "tuning": "on"}
    out = ctl(fake, "status").stdout
    for words in ("1 d 01:01:01", "H200", "3 done", "120.6 KiB", "2 invalid"):
        assert words in out
    assert ctl_json(fake, "status")["pid"] == 12


def test_version(fake, folder):
    assert ctl_json(fake, "version") == {"gemmctl": "0.1.0", "gemmd": "fake-build"}
    out = ctl(None, "version", "--socket", folder / "none.sock").stdout
    assert out == "gemmctl 0.1.0\ngemmd not running\n"


DAEMON = """#!/usr/bin/env python3
import os, socket, sys, time
sys.path[:0] = {path!r}
import msgpack
print("arguments:", sys.argv[1:], flush=True)
open({mark!r}, "a").write("x")
time.sleep(0.3)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[sys.argv.index("--socket") + 1])
s.listen()
end = time.monotonic() + 10
while time.monotonic() < end:
    s.settimeout(end - time.monotonic())
    peer, _ = s.accept()
    u = msgpack.Unpacker()
    if os.fork() == 0:
        while data := peer.recv(4096):
            u.feed(data)
            for _, i, method, _ in u:
                peer.sendall(msgpack.packb([1, i, None, {{"version": 1, "pid": 5, "build": "b",
                    "device": {{"name": "d"}}, "socket": "s"}}]))
        os._exit(0)
    peer.close()
"""


def program(folder, text):
    path = folder / "gemmd-fake"
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_many_starts_start_one(folder):
    import sys
    path = program(folder, DAEMON.format(mark=str(folder / "mark"), path=sys.path))
    env = environment(None, GEMMD_DAEMON=str(path), XDG_STATE_HOME=str(folder), GEMMD_SYSTEM="0",
                      GEMMD_SOCKET=str(folder / "d.sock"))
    running = [subprocess.Popen([GEMMCTL, "start", "--device", "cpu"], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)]
    for p in running:
        out, err = p.communicate(timeout=30)
        assert p.returncode == 0, (out, err)
        assert "pid 5" in out
    assert (folder / "mark").read_text() == "x"
    log = (folder / "gemmd" / "d.log").read_text()
    assert f"['--device', 'cpu', '--socket', '{folder}/d.sock']" in log


def test_a_start_that_fails_says_why(folder):
    path = program(folder, "#!/bin/sh\necho first line\necho the database is on fire\nexit 1\n")
    env = dict(GEMMD_DAEMON=str(path), XDG_STATE_HOME=str(folder), GEMMD_SYSTEM="0",
               GEMMD_SOCKET=str(folder / "d.sock"))
    result = ctl(None, "start", code=3, **env)
    assert "gemmd ended at once: the database is on fire" in result.stderr
    assert "d.log" in result.stderr and result.stderr.count("\n") == 1
    env["GEMMD_DAEMON"] = str(folder / "nothing")
    assert "is not a program" in ctl(None, "start", code=3, **env).stderr
    env["GEMMD_DAEMON"] = ""
    env["PATH"] = "/nonexistent"
    assert "cannot start gemmd" in ctl(None, "start", code=3, **env).stderr


def test_start_when_one_runs(fake):
    fake.answers["status"] = {"pid": 7, "device": {"name": "d"}, "socket": "s"}
    assert ctl(fake, "start").stdout == "gemmd runs already, pid 7, for d on s\n"
