# SPDX-License-Identifier: Apache-2.0
"""The interface to a service manager: a socket with queued clients, READY, WATCHDOG, STOPPING; and
the installed units, compared with gemmd's own options."""
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest

from conftest import BUILD, GEMMCTL, GEMMD, PATIENCE, ROOT, RUNNER, SYNTHETIC, Client, Daemon, eventually, gemm


@pytest.fixture
def manager(folder, shared_cache):
    """manager(env={}) -> a gemmd started as by a manager, and the socket with its notifications."""
    said = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    said.bind(str(folder / "notify"))
    said.settimeout(10 * PATIENCE)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "unit.sock"))
    listener.listen(64)
    running = []

    def start(**env):
        d = Daemon(folder, SYNTHETIC, cache=shared_cache, env={"NOTIFY_SOCKET": str(folder / "notify"), **env})
        d.socket = folder / "unit.sock"
        command = ["sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "sh", *d.command()]
        d.process = subprocess.Popen(list(map(str, command)), env=d.env, close_fds=False,
                                     preexec_fn=lambda: os.dup2(listener.fileno(), 3),
                                     stderr=d.log.open("a"))
        running.append(d)
        return d, said

    yield start
    for d in running:
        assert d.killed or d.stop() == 0, d.text()


def hear(said):
    return said.recv(4096).decode().split("\n")


def test_clients_that_come_before_the_daemon_are_served(manager, folder):
    early = []
    for _ in range(20):
        c = Client(folder / "unit.sock")
        c.send("hello", version=1)
        early.append(c)
    d, said = manager()
    assert [c.wait(1)["version"] for c in early] == [1] * 20
    assert "READY=1" in hear(said)
    [c.close() for c in early]
    assert d.stop() == 0
    assert "STOPPING=1" in hear(said)
    assert d.socket.exists(), "it is the manager's"


def test_a_restart_loses_no_client(manager, folder):
    d, _ = manager()
    assert d.call("get", problem=gemm(), budget=4)["tier"] == "exact"
    d.kill()
    with Client(folder / "unit.sock") as c: # connects although no daemon runs
        request = c.send("get", problem=gemm())
        manager()
        assert c.wait(request)["tier"] == "exact"


def test_a_stop_does_not_start_the_next_one(manager, folder):
    """A connection to the manager's socket starts a gemmd, so `gemmctl stop` must not connect again after the stop."""
    d, _ = manager()
    d.call("hello")
    stop = subprocess.Popen([GEMMCTL, "stop", "--socket", str(folder / "unit.sock")], env=d.env,
                            stdout=subprocess.PIPE, text=True)
    eventually(lambda: d.process.poll() is not None)
    assert stop.communicate(timeout=10 * PATIENCE)[0] == "gemmd has stopped\n" and stop.returncode == 0
    d.killed = True
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.connect(str(folder / "unit.sock"))  # this connection waits in the socket's queue for the next gemmd
    next_one, _ = manager()
    assert next_one.status()["connections"] == 1 + 1, "whoever asks, and the one that was left"


def thread_ids(pid):
    return sorted(map(int, os.listdir(f"/proc/{pid}/task")))


PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 7, 0x4206, 0x4207, 17


def test_the_watchdog_is_fed_by_the_loop_only(manager):
    """Only the loop's thread is stopped; all others run on."""
    d, said = manager(WATCHDOG_USEC="100000")
    assert "READY=1" in [w for _ in range(3) for w in hear(said)]
    for _ in range(3):
        assert hear(said) == ["WATCHDOG=1"]
    libc = ctypes.CDLL(None, use_errno=True)
    assert len(thread_ids(d.process.pid)) > 1, "the database has a thread of its own"
    if libc.ptrace(PTRACE_SEIZE, d.process.pid, None, None):
        pytest.skip("this machine does not let us trace")
    libc.ptrace(PTRACE_INTERRUPT, d.process.pid, None, None)
    os.waitpid(d.process.pid, 0x40000000) # __WALL: the thread has stopped
    time.sleep(0.2)
    said.setblocking(False)
    try:
        while said.recv(100):
            pass
    except BlockingIOError:
        pass
    time.sleep(0.5)
    with pytest.raises(BlockingIOError):
        said.recv(100)
    libc.ptrace(PTRACE_DETACH, d.process.pid, None, None)
    said.settimeout(10 * PATIENCE)
    assert hear(said) == ["WATCHDOG=1"]


# ---- the units --------------------------------------------------------------------------------------

def unit(name):
    """Reads a unit's file: {section: {key: [values]}}."""
    sections = {}
    for line in (BUILD / "systemd" / name if (BUILD / "systemd" / name).exists()
                 else ROOT / "systemd" / name).read_text().splitlines():
        if line.startswith("["):
            keys = sections.setdefault(line.strip("[]"), {})
        elif "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            keys.setdefault(key, []).append(value)
    return sections


def test_the_units_fit_the_program():
    service, sock = unit("gemmd@.service")["Service"], unit("gemmd@.socket")["Socket"]
    program, *options = service["ExecStart"][0].split()
    assert program.endswith("/bin/gemmd")
    shown = subprocess.run([GEMMD, *options, "--print-config"], capture_output=True, text=True, check=True)
    assert re.search(r"^device = cuda:%i", shown.stdout, re.M)
    assert options[options.index("--socket") + 1] == sock["ListenStream"][0]
    longest = sock["ListenStream"][0].replace("%i", "MIG-" + "0" * 36)
    assert len(longest) <= 107
    assert (sock["SocketMode"], sock["DirectoryMode"], sock["Backlog"]) == (["0660"], ["0750"], ["4096"])
    for key, mode in (("RuntimeDirectory", "0750"), ("StateDirectory", "0700"), ("CacheDirectory", "0700")):
        assert service[key] == ["gemmd"] and service[key + "Mode"] == [mode]
    assert service["RuntimeDirectoryPreserve"] == ["yes"], "one instance must not remove another's socket"
    most = int(re.search(r"^max-connections = (\d+)", shown.stdout, re.M).group(1))
    assert int(service["LimitNOFILE"][0]) > most + 40
    assert service["Type"] == ["notify"] and int(service["WatchdogSec"][0]) >= 10
    assert set(service["RestartPreventExitStatus"][0].split()) == {"2", "75"}
    assert service["CapabilityBoundingSet"] == [""]
    assert service["RestrictAddressFamilies"][0].split() == ["AF_UNIX", "AF_INET", "AF_INET6"], "--metrics-listen"
    assert (service["IPAddressDeny"], service["IPAddressAllow"]) == (["any"], ["localhost"])
    assert "MemoryDenyWriteExecute" not in service and service["PrivateDevices"] == ["no"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_understands_the_units(folder):
    for name in ("gemmd@.service", "gemmd@.socket", "gemmd-copy@.service", "gemmd-copy@.timer", "gemmd-fleet@.service"):
        built = BUILD / "systemd" / name
        text = (built if built.exists() else next((ROOT / "systemd").glob(f"{name}*"))).read_text()
        (folder / name).write_text(re.sub(r"^ExecStart=[/@]\S*gemm\S+", "ExecStart=/bin/true", text, flags=re.M))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", folder / "gemmd@x.service",
                             folder / "gemmd-copy@x.timer", folder / "gemmd-fleet@x.service"],
                            capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stderr


READ = "import sqlite3, sys; print(sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True).execute(" \
       "'SELECT count(*) FROM current_best').fetchone()[0])"


def test_readers_get_a_copy_and_no_right_on_the_database(daemon, folder):
    """Runs the commands of the unit gemmd-copy@.service, with this test's folder and a group that exists here."""
    group = 54321 if os.geteuid() == 0 else os.getegid()
    (folder / "gemmd-copy").mkdir(mode=0o750)
    os.chown(folder / "gemmd-copy", -1, group)
    folder.chmod(0o755)
    d = daemon()
    for n in (512, 1024):
        d.call("get", problem=gemm(n=n), budget=2)
        for step in ("ExecStartPre", "ExecStart", "ExecStopPost"):
            for command in unit("gemmd-copy@.service")["Service"][step]:
                for old, new in ((r"^/\S+/gemmctl", GEMMCTL), ("/run/gemmd/%i.sock", d.socket),
                                 ("/var/lib/gemmd/copy.db", folder / "copy.db"), ("/var/lib", folder),
                                 ("gemmd-read", group)):
                    command = re.sub(old, str(new), command) if old != "gemmd-read" else \
                        command.replace(f"-g {old}", f"-g {new}")
                subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)
        reader = {"user": 65534, "group": 54321, "extra_groups": []} if os.geteuid() == 0 else {}
        copy = folder / "gemmd-copy" / "gemmd.db"
        shown = subprocess.run([sys.executable, "-c", READ, copy], capture_output=True, text=True, **reader)
        assert shown.stdout == f"{n // 512}\n", shown.stderr
    assert copy.stat().st_mode & 0o777 == 0o640 and copy.stat().st_gid == group
    assert [p.name for p in (folder / "gemmd-copy").iterdir()] == ["gemmd.db"]
    assert not (folder / "copy.db").exists()
    for part in ("", "-wal", "-shm"):
        assert os.stat(f"{d.database}{part}").st_mode & 0o777 == 0o600
