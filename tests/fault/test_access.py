# SPDX-License-Identifier: Apache-2.0
"""Access: modes of directory and socket, paths prepared by other users, malicious text in configs."""
import os
import socket
import stat
import subprocess
import sys

import msgpack
import pytest

from conftest import GEMMCTL, GEMMD, RUNNER, SYNTHETIC, Daemon, RpcError, connected, eventually, gemm

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def refuses(folder, path, env=None):
    """Asserts that gemmd does not start on this socket path. Returns its stderr."""
    result = subprocess.run(
        list(map(str, [GEMMD, "--device", SYNTHETIC, "--runner", RUNNER, "--database",
                       folder / "d.db", "--cache-dir", folder / "cache",
                       *(["--socket", path] if path else [])])),
        capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    assert result.returncode == 1, result
    return result.stderr


def test_the_directory_is_for_owner_and_group(daemon, folder):
    d = daemon()
    d.stop()
    d.socket = folder / "made" / "gemmd.sock"
    before = os.umask(0)
    try:
        d.start()
    finally:
        os.umask(before)
    assert stat.S_IMODE(d.socket.parent.stat().st_mode) == 0o750
    assert stat.S_IMODE(d.socket.stat().st_mode) == 0o660
    assert stat.S_IMODE((d.socket.parent / "gemmd.sock.lock").stat().st_mode) == 0o600


def test_a_directory_that_others_may_write_to_is_refused(folder):
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    assert "chmod go-w" in refuses(folder, folder / "open" / "gemmd.sock")
    assert not list((folder / "open").iterdir())


@ROOT_ONLY
def test_a_link_of_somebody_else_is_not_followed(folder):
    (folder / "target").mkdir()
    link = folder / "run"
    link.symlink_to(folder / "target")
    os.lchown(link, 65534, 65534)
    assert "symbolic link of user 65534" in refuses(folder, link / "gemmd.sock")
    assert not list((folder / "target").iterdir())


def test_a_lock_file_that_is_a_link_is_not_followed(folder):
    (folder / "precious").write_text("data")
    (folder / "gemmd.sock.lock").symlink_to(folder / "precious")
    assert "gemmd.sock.lock" in refuses(folder, folder / "gemmd.sock")
    assert (folder / "precious").read_text() == "data"


def test_a_link_in_the_sockets_place_is_not_removed_nor_followed(folder):
    (folder / "precious").write_text("data")
    (folder / "gemmd.sock").symlink_to(folder / "precious")
    assert "is no socket" in refuses(folder, folder / "gemmd.sock")
    assert (folder / "gemmd.sock").is_symlink() and (folder / "precious").read_text() == "data"


INJECTIONS = ['64\n#include "/etc/passwd"', '64 -I/etc -include passwd', "64;system(1)", "../../etc/passwd"]


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_of_a_client_reaches_a_compiler(daemon_of_module, text):
    """Parameters are numbers and listed words; any other text is an invalid config."""
    d = daemon_of_module
    with d.connect() as c:
        config = c.call("get", problem=gemm(), wait="cached")["config"]
        for name in [*config, "permute_x", "use_tma_store", "OPTIONS"]:
            asked = {**config, name: text}
            assert c.call("check", problem=gemm(), config=asked)["valid"] is False, name
            with pytest.raises(RpcError) as e:
                c.call("tune", problem=gemm(), configs=[asked])
            assert e.value.survives and "root:" not in e.value.message
        with pytest.raises(RpcError) as e:
            c.call("check", problem=gemm(), config={**config, text: 1})
        assert "is no field name" in e.value.message
        for field in ("dtype_in", "dtype_out", "mode", "routing"):
            with pytest.raises(RpcError):
                c.call("tune", problem=gemm(**{field: text}))
        assert c.call("status")["runner"]["starts"] == 0, "no runner has seen it"


def test_descriptors_of_clients_are_dropped(daemon):
    d = daemon()
    with d.connect() as c, open("/dev/null", "rb") as f:
        before = len(os.listdir(f"/proc/{d.process.pid}/fd"))
        for i in range(50):
            socket.send_fds(c.socket, [msgpack.packb([0, i + 1, "hello", {}])], [f.fileno()] * 4)
            c.next_id += 1
            c.wait(i + 1)
        eventually(lambda: len(os.listdir(f"/proc/{d.process.pid}/fd")) <= before + 1)


@ROOT_ONLY
def test_the_event_of_a_stop_says_who_asked(folder):
    """First root stops a user's gemmd, then the user does; each event names who did."""
    os.chown(folder, 1, 1)
    d = Daemon(folder, SYNTHETIC)
    as_daemon = {"user": "daemon", "group": "daemon", "extra_groups": []}
    for uid in (0, 1):
        process = subprocess.Popen(list(map(str, d.command())), env=d.env, stderr=subprocess.DEVNULL,
                                   **as_daemon)
        eventually(lambda: connected(d.socket)).close()
        subprocess.run([GEMMCTL, "stop"], env={**d.env, "GEMMD_SOCKET": str(d.socket)}, check=True,
                       stdout=subprocess.DEVNULL, **({} if uid == 0 else as_daemon))
        assert process.wait(20) == 0
        assert d.sql("SELECT uid FROM event WHERE kind = 'stop' ORDER BY id DESC LIMIT 1") == [(uid,)]
