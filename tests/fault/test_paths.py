# SPDX-License-Identifier: Apache-2.0
"""Owners of trusted paths (proto/trust.h); locks of other programs. The other user is a uid without an account."""
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys

import pytest

from conftest import GEMMCTL, GEMMD, PATIENCE, RUNNER, SYNTHETIC, Daemon, RpcError, eventually, gemm

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
OTHER = 54321
LIMIT = 60 * PATIENCE  # against hanging tests


def run(folder, *options, device=SYNTHETIC, env=None):
    """Runs a gemmd that must not start. Returns (exit status, stderr)."""
    result = subprocess.run(
        list(map(str, [GEMMD, "--device", device, "--runner", RUNNER, "--socket", folder / "gemmd.sock",
                       "--database", folder / "cache.db", "--cache-dir", folder / "cache", *options])),
        capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **(env or {})})
    return result.returncode, result.stderr


def of_other(path):
    """A folder of another user, open for all to enter."""
    path.mkdir()
    os.chown(path, OTHER, OTHER)
    path.chmod(0o755)
    return path


# ---- other users' folders ---------------------------------------------------------------------------

@ROOT_ONLY
def test_root_loads_no_kernels_from_a_cache_of_another_user(folder):
    status, said = run(folder, "--cache-dir", of_other(folder / "his"))
    assert status == 1 and f"his belongs to user {OTHER}" in said, said


@ROOT_ONLY
def test_root_loads_no_kernel_that_another_user_put_into_its_cache(daemon, folder):
    """Another user put the kernel there while the folder was open to others."""
    d = daemon("cpu", own_cache=True)
    with d.connect() as c:
        module = c.call("get", problem=gemm(n=64, k=64, dtype_in="fp32"), budget=1)["module"]
        assert c.call("module", id=module)
        for kernel in (d.cache / "modules").iterdir():
            os.chown(kernel, OTHER, OTHER)
        with pytest.raises(RpcError) as e:
            c.call("module", id=module)
    assert f"belongs to user {OTHER}" in e.value.message


@ROOT_ONLY
@pytest.mark.parametrize("name", ["modules", "records", "variants", "serving"])
def test_root_uses_no_folder_that_another_user_made_in_its_cache(folder, name):
    """Another user made the folder while the cache was open to all, or made a link, which redirects root's files."""
    cache = folder / "cache"
    cache.mkdir(mode=0o755)
    of_other(cache / name)
    status, said = run(folder, device="cpu")
    assert status == 1 and f"{name} belongs to user {OTHER}" in said, said
    (cache / name).rmdir()
    (folder / "elsewhere").mkdir()
    (cache / name).symlink_to(folder / "elsewhere")
    os.lchown(cache / name, OTHER, OTHER)
    status, said = run(folder, device="cpu")
    assert status == 1 and f"{name} is a symbolic link of user {OTHER}" in said, said
    assert not list((folder / "elsewhere").iterdir())


@ROOT_ONLY
def test_root_runs_no_compiler_of_another_user(daemon, folder):
    cc = of_other(folder / "his") / "cc"
    cc.write_text(f"#!/bin/sh\ntouch {folder / 'ran'}\nexec cc \"$@\"\n")
    cc.chmod(0o755)
    d = daemon("cpu", env={"GEMMD_CC": str(cc)})
    with pytest.raises(RpcError) as e:
        d.call("get", problem=gemm(n=64, k=64, dtype_in="fp32"), budget=1)
    assert not (folder / "ran").exists()
    assert e.value.name == "no_compiler" and f"root does not run the C compiler {cc}" in e.value.message
    assert f"his belongs to user {OTHER}" in e.value.message, "the log is root's: the client needs the reason"


@ROOT_ONLY
def test_root_serves_no_database_of_another_user(folder):
    his = of_other(folder / "his")
    status, said = run(folder, "--database", his / "cache.db")
    assert status == 1 and f"his belongs to user {OTHER}" in said, said
    sqlite3.connect(folder / "cache.db").close()
    (folder / "cache.db").touch()
    os.chown(folder / "cache.db", OTHER, OTHER)
    status, said = run(folder)
    assert status == 1 and f"cache.db belongs to user {OTHER}" in said, said
    assert not list(his.iterdir())


@ROOT_ONLY
def test_root_removes_nothing_below_a_temporary_folder_of_another_user(daemon, folder):
    left = of_other(folder / "his") / "gemmd-cc-abcdef" / "precious"
    left.parent.mkdir()
    left.touch()
    os.utime(left.parent, (0, 0))
    d = daemon("cpu", env={"TMPDIR": str(folder / "his")})
    with pytest.raises(RpcError):
        d.call("get", problem=gemm(n=64, k=64, dtype_in="fp32"), budget=1)
    assert left.exists()


def test_a_file_that_is_no_database_keeps_its_mode(folder):
    (folder / "cache.db").write_text("named by mistake\n")
    (folder / "cache.db").chmod(0o644)
    status, said = run(folder)
    assert status == 1 and "is no database" in said, said
    assert (folder / "cache.db").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("what", ["text", "sqlite", "newer"])
def test_a_refused_start_leaves_nothing_beside_a_file_that_is_no_database_of_ours(folder, what):
    path = folder / "cache.db"
    if what == "text":
        path.write_text("named by mistake\n")
    else:
        ours = "PRAGMA application_id = 0x67656d6d; PRAGMA user_version = 99;" if what == "newer" else ""
        db = sqlite3.connect(path)
        db.executescript(f"{ours} CREATE TABLE mail(body)")
        db.close()
        path.chmod(0o644)
    before = path.read_bytes()
    status, said = run(folder)
    assert status == 1 and {"text": "is no database", "sqlite": "another program", "newer": "a newer gemmd"}[what] in said
    assert [p.name for p in folder.glob("cache.db*")] == ["cache.db"] and path.read_bytes() == before


@pytest.mark.parametrize("part", ["", "-wal", "-shm"])
def test_a_database_has_no_second_name(folder, part):
    precious = folder / "precious"
    precious.write_text("data\n")
    os.link(precious, folder / f"cache.db{part}")
    status, said = run(folder)
    assert status == 1 and "another file's name" in said, said
    assert precious.read_text() == "data\n"


@ROOT_ONLY
def test_a_client_talks_to_no_other_user_in_its_place_below_tmp():
    """Root binds the socket, and another user listens on it: the client must ask who called listen(2)."""
    place = pathlib.Path(f"/tmp/gemmd-{os.geteuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    path = place / f"replay-test-{os.getpid()}.sock"
    env = {k: v for k, v in os.environ.items() if k not in ("GEMMD_SOCKET", "XDG_RUNTIME_DIR")}
    with socket.socket(socket.AF_UNIX) as his:
        his.bind(str(path))
        os.seteuid(OTHER)
        his.listen()
        os.seteuid(0)
        result = subprocess.run([GEMMCTL, "status", "--device", path.stem], capture_output=True, text=True,
                                timeout=LIMIT, env={**env, "GEMMD_SYSTEM": "0"})
        path.unlink()
    assert result.returncode == 1 and f"user {OTHER} listens" in result.stderr, result.stderr


@ROOT_ONLY
def test_root_reads_no_configuration_of_another_user(folder):
    path = of_other(folder / "his") / "gemmd.conf"
    path.write_text("[gemmd]\nlog-level = debug\n")
    status, said = run(folder, "--config", path, "--print-config")
    assert status == 2 and f"belongs to user {OTHER}" in said, said


def test_a_configuration_may_be_a_link_of_ours(folder):
    """As in mounted volumes."""
    (folder / "real.conf").write_text("[gemmd]\nlog-level = debug\n")
    (folder / "gemmd.conf").symlink_to("real.conf")
    result = subprocess.run([GEMMD, "--config", folder / "gemmd.conf", "--print-config"], capture_output=True,
                            text=True, timeout=LIMIT)
    assert result.returncode == 0 and "log-level = debug" in result.stdout, result.stderr


def start_with_log(folder, state):
    fake = folder / "fake"
    fake.write_text("#!/bin/sh\necho from the daemon >&2\nexit 1\n")
    fake.chmod(0o755)
    (state / "gemmd").mkdir(exist_ok=True)
    precious = folder / "precious"
    precious.write_text("data\n")
    (state / "gemmd" / "cpu.log").symlink_to(precious)
    result = subprocess.run(
        [GEMMCTL, "start", "--device", "cpu"], capture_output=True, text=True, timeout=LIMIT,
        env={**os.environ, "GEMMD_DAEMON": str(fake), "GEMMD_SYSTEM": "0", "XDG_STATE_HOME": str(state),
             "XDG_RUNTIME_DIR": str(folder), "GEMMD_SOCKET": str(folder / "cpu.sock")})
    assert precious.read_text() == "data\n", "a log went through a link"
    return result.stderr


def test_gemmctl_start_writes_its_log_through_no_link(folder):
    (folder / "state").mkdir()
    assert "cpu.log is a symbolic link" in start_with_log(folder, folder / "state")


@ROOT_ONLY
def test_gemmctl_start_as_root_uses_no_state_of_another_user(folder):
    (folder / "state").mkdir()
    of_other(folder / "state" / "gemmd")
    assert f"belongs to user {OTHER}" in start_with_log(folder, folder / "state")


def test_a_backup_goes_only_where_nobody_else_may_write(daemon, folder):
    d = daemon()
    (folder / "open").mkdir()
    places = [folder / "open"] + ([of_other(folder / "his")] if os.geteuid() == 0 else [])
    for mode in (0o1777, 0o777):
        (folder / "open").chmod(mode)
        for place in places:
            with pytest.raises(RpcError) as e:
                d.call("backup", path=str(place / "copy.db"))
            assert e.value.name == "denied" and str(place) in e.value.message, e.value
            assert not list(place.iterdir())


def test_a_kernel_is_compiled_only_where_nobody_else_may_write(daemon, folder):
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    d = daemon("cpu", own_cache=True, env={"TMPDIR": str(folder / "open")})
    with pytest.raises(RpcError) as e:
        d.call("get", problem=gemm(n=64, k=64, dtype_in="fp32"), budget=1)
    assert "may be written to by others" in e.value.message


@pytest.mark.parametrize("name", ["cache.db", "cache.db-wal", "cache.db-shm", "cache.db-journal",
                                  "cache.db.lock", "gemmd.sock.lock", "gemmd.conf"])
def test_a_fifo_where_a_file_belongs_is_refused_at_once(folder, name):
    os.mkfifo(folder / name)
    status, said = run(folder, *(["--config", folder / name] if name == "gemmd.conf" else []))
    assert status == (2 if name == "gemmd.conf" else 1) and "plain file" in said and name in said, said


# ---- other programs' locks --------------------------------------------------------------------------

def test_the_database_is_nobody_elses_to_open(daemon, folder):
    d = daemon()
    d.call("get", problem=gemm(), budget=2)
    assert d.stop() == 0
    files = [folder / f"cache.db{part}" for part in ("", "-wal", "-shm")]
    assert {p.stat().st_mode & 0o777 for p in files} == {0o600}
    for p in files:
        p.chmod(0o644)  # an older gemmd created its files with this mode
    d.start()
    assert {p.stat().st_mode & 0o777 for p in files} == {0o600}


HOLD = """import fcntl, os, sqlite3, sys
what, path = sys.argv[1:]
if what == "exclusive":
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA locking_mode=exclusive")
    db.execute("CREATE TABLE IF NOT EXISTS temp.t(x)")
    db.execute("BEGIN EXCLUSIVE")
    db.execute("COMMIT")
else:
    f = os.open(path + "-shm", os.O_RDONLY)
    fcntl.lockf(f, fcntl.LOCK_SH, 1, 120)  # waits for a commit of the daemon
print("holds", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another program that holds the database or a lock of the database."""

    def __init__(self, what, path):
        self.process = subprocess.Popen([sys.executable, "-c", HOLD, what, str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "holds\n"

    def __enter__(self):
        return self.process.pid

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


@pytest.mark.parametrize("what", ["exclusive", "shm"])
def test_a_start_names_the_program_that_has_locked_the_database(daemon, folder, what):
    """The exit status makes a service manager try again."""
    d = daemon()
    d.call("get", problem=gemm(), budget=2)
    assert d.stop() == 0
    with Holder(what, d.database) as pid:
        d.process = subprocess.Popen(list(map(str, d.command())), env=d.env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=d.log.open("w"))
        assert d.process.wait(LIMIT) == 1, d.text()
        d.killed = True
        assert f"locked by another program, pid {pid} (" in d.text(), d.text()
        assert f"pid {d.process.pid}" not in d.text() and "another gemmd" not in d.text()
    d.start()
    assert d.call("get", problem=gemm(), wait="cached")["tier"] == "exact"


def test_a_lock_while_it_runs_is_waited_for_and_its_holder_named(daemon):
    d = daemon()
    with d.connect() as c:
        assert c.call("get", problem=gemm(), budget=2)["saved"] is True
        with Holder("shm", d.database) as pid:
            assert c.call("get", problem=gemm(n=512), budget=2)["saved"] is False
            assert c.call("status")["store"]["locked"] is True
            assert f"locked by another program, pid {pid} (" in d.text()
        eventually(lambda: c.call("status")["store"]["locked"] is False)
        eventually(lambda: c.call("get", problem=gemm(n=512), wait="cached")["saved"] is True)
        assert len(c.list("best")) == 2
