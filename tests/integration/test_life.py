# SPDX-License-Identifier: Apache-2.0
"""Starting, idling, stopping; two daemons; bad databases, sockets and disks."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import (BUILD, GEMMD, RUNNER, PATIENCE, SYNTHETIC, Client, Daemon, EndlessCompiler, RpcError, connected,
                      eventually, gemm)


def start_fails(folder, *options, device=SYNTHETIC, env=None, database=None, socket=None):
    """Runs gemmd, which must refuse to start. Returns (exit status, output)."""
    result = subprocess.run(
        list(map(str, [GEMMD, "--device", device, "--socket", socket or folder / "other.sock",
                       "--database", database or folder / "other.db", "--cache-dir",
                       folder / "cache", "--runner", RUNNER, *options])),
        capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    assert result.returncode != 0
    return result.returncode, result.stderr + result.stdout


def test_idle_holds_no_runner_and_little_memory(daemon):
    d = daemon(options=["--linger-ms", "300"])
    d.call("get", problem=gemm(), budget=4)
    status = eventually(lambda: (lambda s: s["runner"]["state"] == "none" and s)(d.status()))
    assert status["runner"]["starts"] == 1 and status["runner"]["deaths"] == 0
    with d.connect() as c:
        for i in range(10000):
            c.send("put", problem={"op": "custom:rss", "i": i, "what": "ten thousand keys"},
                   config={"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "num_warps": i % 8}, time_us=10)
            if i % 50 == 49:
                c.wait(c.next_id)
        status = c.call("status")
    assert status["keys"] >= 10000
    if "sanitize" not in os.environ.get("GEMMD_BUILD_KIND", ""):
        d.stop()
        d.start()
        with d.connect() as c:
            assert c.call("get", problem={"op": "custom:rss", "i": 7, "what": "ten thousand keys"})
            assert c.call("status")["rss_bytes"] <= 16 * 2**20


def test_a_runner_that_may_not_linger_waits_for_its_order(daemon):
    d = daemon(options=["--linger-ms", "0"])
    with d.connect() as c:
        for n in (256, 512, 1024):
            assert c.call("get", problem=gemm(n=n), budget=2)["source"] == "tuned"
        eventually(lambda: c.call("status")["runner"]["state"] == "none")
        runner = c.call("status")["runner"]
    assert runner["starts"] <= 2 * 3 and runner["deaths"] == 0, "an order may cross a bye"


def test_without_standard_files_nothing_is_printed_into_others(folder):
    d = subprocess.Popen(["sh", "-c", f"exec {GEMMD} --device {SYNTHETIC} --socket {folder}/a.sock"
                          f" --database {folder}/a.db --cache-dir {folder}/cache --runner {RUNNER}"
                          " <&- >&- 2>&-"])
    with eventually(lambda: connected(folder / "a.sock")) as c:
        assert c.call("get", problem=gemm(), budget=4)["source"] == "tuned"
    locks = [p.read_text() for p in folder.glob("*.lock")]
    assert locks and not any("notice" in text or "info" in text for text in locks)
    d.terminate()
    assert d.wait(timeout=60) == 0


def full_pipe():
    """A pipe without room: the next writer blocks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while os.write(writer, b"\n" * 4096):
            pass
    os.set_blocking(writer, True)
    return reader, writer


def test_a_log_that_nobody_reads_keeps_nobody_waiting(daemon):
    """Neither gemmd nor its runner, which logs, too, may block."""
    d = daemon("cpu", own_cache=True)
    asked = {"problem": gemm(dtype_in="fp32"), "budget": 2}
    d.call("get", **asked)
    assert d.stop() == 0
    for module in d.cache.rglob("*.so"):
        module.write_bytes(module.read_bytes()[:-8] + b"damaged!")
    reader, writer = full_pipe()
    process = subprocess.Popen(list(map(str, d.command())), stdout=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    try:
        with eventually(lambda: connected(d.socket)) as c:
            assert c.call("tune", **asked)["tier"] == "exact"
            assert c.call("status")["runner"]["deaths"] == 0
        os.read(reader, 1 << 20)  # empties the pipe
        process.terminate()
        assert process.wait(20 * PATIENCE) == 0
        said = os.read(reader, 65536).decode()
        assert "lines were left out: nobody took them" in said and "stopping: SIGTERM" in said
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def test_the_reason_is_the_last_that_is_said(folder):
    (folder / "other.db").write_text("garbage")
    code, said = start_fails(folder)
    assert code == 1 and "is no database" in said.splitlines()[-1]


def test_clean_stop_ends_work_in_order(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    c = d.connect()
    request = c.send("get", problem=gemm(), budget=400, iters=100)
    eventually(lambda: d.status()["jobs"]["running"] == 1)
    runner = d.runner_pid()
    assert d.stop() == 0
    with pytest.raises((RpcError, EOFError)) as e:
        c.wait(request)
    if e.type is RpcError:
        assert e.value.name in ("shutting_down", "cancelled")
    assert not d.socket.exists()
    eventually(lambda: not pathlib.Path(f"/proc/{runner}").exists())


def test_a_stop_while_it_compiles_leaves_no_folders(daemon, folder):
    cc = EndlessCompiler(folder)
    d = daemon("cpu", env=cc.env, own_cache=True)
    with d.connect() as c:
        c.send("tune", problem=gemm(m=64, n=64, k=64))
        eventually(cc.left)
        assert d.stop() == 0
    eventually(lambda: not cc.left())


def test_a_sighup_makes_it_reopen_its_log_and_go_on(daemon):
    ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # gemmd inherits this; under nohup it would ignore SIGHUP
    d = daemon()
    signal.signal(signal.SIGHUP, ours)
    old = d.log.rename(d.log.with_name("log.1"))
    old.chmod(0o600)
    d.process.send_signal(signal.SIGHUP)
    eventually(d.log.exists)
    eventually(lambda: "SIGHUP: the log is open anew" in d.text())
    before = old.read_text()
    assert d.call("get", problem=gemm(), budget=4)["source"] == "tuned"
    assert d.stop() == 0
    assert "stopping: SIGTERM" in d.text() and old.read_text() == before
    assert re.findall(r"info    (tuned .*?): [\d.]+ us, [\d.]+x the default, 4 configs, 0 failed, [\d.]+ s$", d.text(), re.M) == [
        "tuned forward 256x256x256 e4"]
    assert d.log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_log_that_cannot_be_reopened_goes_on_in_the_old_file(daemon, folder, link):
    d = daemon()
    old = d.log.rename(d.log.with_name("log.1"))
    (folder / "elsewhere").write_text("")
    link(folder / "elsewhere", d.log)
    d.process.send_signal(signal.SIGHUP)
    eventually(lambda: "SIGHUP: cannot reopen the log" in old.read_text())
    assert d.call("status")["pid"] == d.process.pid and (folder / "elsewhere").read_text() == ""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE], ids=str)
def test_a_signal_that_asks_for_no_end_ends_neither_it_nor_its_runner(daemon, number):
    d = daemon()
    d.call("get", problem=gemm(), budget=4)
    runner = d.runner_pid()
    os.kill(runner, number)
    d.process.send_signal(number)
    assert d.call("get", problem=gemm(m=512), budget=4)["source"] == "tuned"
    assert d.runner_pid() == runner and d.status()["runner"]["deaths"] == 0


def test_nohup_keeps_it(daemon):
    d = daemon()
    d.stop()
    d.launcher = ["nohup"]
    d.start()
    d.process.send_signal(signal.SIGHUP)
    assert d.call("get", problem=gemm(), budget=4)["source"] == "tuned"
    assert "stopping: SIGHUP" not in d.text()


def test_the_error_of_a_failed_start_is_its_last_line(folder):
    (folder / "a.db").mkdir()
    code, text = start_fails(folder, database=folder / "a.db")
    assert code != 0 and "stopping" not in text and " error " in text.splitlines()[-1], text


def test_shutdown_by_request(daemon):
    d = daemon()
    assert d.call("shutdown")["stopping"] is True
    assert d.process.wait(20) == 0


def test_two_daemons_on_one_device(daemon, folder):
    d = daemon()
    code, text = start_fails(folder, socket=d.socket)
    assert code == 75 and str(d.process.pid) in text
    assert d.status()["pid"] == d.process.pid, "the first one is left alone"


def test_an_offline_daemon_beside_another_one(daemon):
    """Two daemons on one database, one of them offline: each reads the other's changes."""
    d = daemon()
    mine = {"op": "custom:mine", "n": 1}
    command = [GEMMD, "--device", SYNTHETIC, "--offline", "--database", d.database, "--cache-dir", d.cache]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as p:
        with Client(p.stdout.readline().strip()) as offline:
            assert offline.call("put", problem=mine, config={"A": 1}, time_us=5)["saved"]
            eventually(lambda: d.status()["keys"] == 1)
            assert offline.call("get", problem=mine) == d.call("get", problem=mine)
        p.terminate()


def test_an_offline_daemon_on_a_database_that_is_not_there(folder):
    code, text = start_fails(folder, "--offline", database=folder / "typo.db")
    assert code == 1 and "there is no database" in text and "typo.db" in text
    assert not list(folder.glob("typo*"))


def test_few_open_files_are_told(folder):
    for n in (5, 7, 9, 14, 27):
        run = subprocess.run(["sh", "-c", f'ulimit -n {n}; exec "$@"', "sh", GEMMD, "--device", SYNTHETIC,
                              "--socket", folder / "few.sock", "--database", folder / "few.db"],
                             capture_output=True, text=True, timeout=60)
        assert run.returncode == 1 and f"only {n} files" in run.stderr + run.stdout, run
    assert not list(folder.glob("few*"))


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_relative_socket_is_below_the_folder_where_gemmd_was_started(folder, by_variable):
    options, env = (["--socket=s.sock"], {}) if not by_variable else ([], {"GEMMD_SOCKET": "s.sock"})
    process = subprocess.Popen([GEMMD, "--device", SYNTHETIC, "--database", folder / "db", "--cache-dir=cache",
                                "--runner", RUNNER, *options], cwd=folder, env={**os.environ, **env},
                               stderr=subprocess.DEVNULL)
    try:
        eventually((folder / "s.sock").exists)
        result = subprocess.run([BUILD / "client" / "gemmctl", "status", "--json", "--socket", "s.sock"], cwd=folder,
                                capture_output=True, text=True, timeout=60, check=True)
        status = json.loads(result.stdout)
        assert status["socket"] == str(folder / "s.sock")
        assert status["cache"]["path"] == str(folder / "cache")
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_print_config_shows_the_effective_paths(folder):
    def shown(*options, **env):
        result = subprocess.run([GEMMD, "--print-config", *options], capture_output=True, text=True, check=True,
                                cwd=folder, timeout=60,
                                env={"GEMMD_SYSTEM": "0", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), **env})
        return {line.split(" = ")[0]: [part.strip() for part in line.split(" = ")[1].split(" ;")]
                for line in result.stdout.splitlines() if " = " in line}, result.stderr
    config, _ = shown("--device=cpu")
    assert config["socket"] == [str(folder / "gemmd" / "cpu.sock"), "default"]
    assert config["database"] == [str(folder / ".local/state/gemmd/gemmd.db"), "default"]
    assert config["cache-dir"] == [str(folder / ".cache/gemmd"), "default"]
    assert config["runner"][0].endswith("/gemmd-runner") and config["runner"][1] == "default"
    assert not list(folder.iterdir()), "nothing is made"
    config, _ = shown("--device=cpu", "--cache-dir=rel", GEMMD_SOCKET="x.sock", GEMMD_RUNNER=str(RUNNER))
    assert config["socket"] == [str(folder / "x.sock"), "GEMMD_SOCKET"]
    assert config["cache-dir"] == [str(folder / "rel"), "command line"]
    assert config["runner"] == [str(RUNNER), "GEMMD_RUNNER"]
    config, said = shown("--device=replay:nothing")
    assert config["socket"][0] == "" and config["cache-dir"][0] and "what depends on this is not known" in said


def test_settings_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        run = subprocess.run([GEMMD, "--print-config"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1 and "No space" in run.stderr


def test_an_indented_configuration(folder):
    """Indented lines are settings of their own, as gemmd(8) says."""
    file = folder / "gemmd.conf"
    file.write_text(f"  [gemmd]\n\tdatabase = {folder}/db\n    ; a remark\n\n   log-level = error\n")
    run = subprocess.run([GEMMD, f"--config={file}", "--print-config"], capture_output=True, text=True)
    said = dict(line.split(" ;")[0].split(" = ") for line in run.stdout.splitlines() if " = " in line)
    assert run.returncode == 0, run
    assert said["database"].strip() == f"{folder}/db" and said["log-level"].strip() == "error"


def test_nobody_else_can_take_a_lock(daemon, folder):
    """Other users must not read lock files: flock(2) only needs a file that is open for reading."""
    d = daemon()
    lock = folder / "cache.db.lock"
    assert {p.stat().st_mode & 0o777 for p in folder.glob("*.lock")} == {0o600}
    lock.chmod(0o644)  # an older gemmd created the lock with this mode
    assert d.stop() == 0
    d.start()
    assert lock.stat().st_mode & 0o777 == 0o600
    assert d.stop() == 0
    pid = d.process.pid
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, text = start_fails(folder, "--offline", database=d.database)
        assert code == 75 and f"pid {pid}" not in text and "lslocks" in text
        code, text = start_fails(folder, database=d.database)
        assert code == 75 and f"pid {pid}" not in text and "lslocks" in text


def test_a_stale_socket_is_replaced(daemon):
    d = daemon()
    d.kill()
    assert d.socket.exists()
    d.start()
    assert d.status()["pid"] == d.process.pid


def test_a_socket_that_is_removed_comes_back(daemon, folder):
    d = daemon()
    d.socket.unlink()
    assert eventually(lambda: connected(d.socket)).call("status")["pid"] == d.process.pid
    assert d.text().count("bound again") == 1
    assert d.stop() == 0 and not d.socket.exists()
    d.socket = folder / "run" / "gemmd.sock"
    d.start()
    with d.connect() as before:
        shutil.rmtree(folder / "run")  # as at logout
        assert eventually(lambda: connected(d.socket)).call("status")["pid"] == d.process.pid
        assert before.call("status")["pid"] == d.process.pid, "connections stay"
    assert d.socket.stat().st_mode & 0o777 == 0o660
    code, text = start_fails(folder, socket=d.socket)
    assert code == 75 and str(d.process.pid) in text, "the lock was taken anew"


def test_who_took_a_lost_path_keeps_it(daemon, folder):
    d = daemon()
    other = Daemon(folder, SYNTHETIC)
    other.database, other.log = folder / "other.db", folder / "other.log"
    d.process.send_signal(signal.SIGSTOP)
    d.socket.unlink()
    code, text = start_fails(folder, socket=d.socket)
    assert code == 75 and f"`kill {d.process.pid}`" in text, "gemmctl stop would reach nobody"
    (folder / "gemmd.sock.lock").unlink()
    other.start()
    try:
        d.process.send_signal(signal.SIGCONT)
        said = "cannot be bound again"
        eventually(lambda: said in d.text())
        time.sleep(3.5)  # gemmd checks the path every 3 s
        assert d.text().count(said) == 1 and f"pid {other.process.pid}" in d.text()
        assert d.stop() == 0
        assert other.status()["pid"] == other.process.pid
    finally:
        assert other.stop() == 0


def test_a_file_in_the_sockets_place_is_not_removed(folder):
    (folder / "precious").write_text("data")
    _, text = start_fails(folder, socket=folder / "precious")
    assert (folder / "precious").read_text() == "data" and "precious" in text


def test_a_socket_path_over_107_bytes(folder):
    _, text = start_fails(folder, socket=folder / ("x" * 120))
    assert "107" in text


def test_a_newer_database(daemon, folder):
    d = daemon()
    d.stop()
    with sqlite3.connect(d.database) as db:
        db.execute("PRAGMA user_version = 99")
    _, text = start_fails(folder, database=d.database)
    assert "99" in text and "newer" in text


def test_a_corrupt_database_is_set_aside(daemon, folder):
    d = daemon()
    d.stop()
    d.database.write_bytes(b"this is not a database" * 1000)
    d.start()
    assert list(folder.glob("cache.db.corrupt-*")), "kept for people to look at"
    assert "corrupt" in d.text()
    eventually(lambda: d.call("list", what="events", filter={"kind": "corrupt"})["total"] >= 1)
    assert d.call("get", problem=gemm(), budget=4)["saved"] is True


def test_a_file_that_was_never_a_database_is_not_touched(folder):
    (folder / "notes.txt").write_text("named by mistake\n")
    _, text = start_fails(folder, database=folder / "notes.txt")
    assert text.count("is no database") == 1 and "--database" in text
    assert (folder / "notes.txt").read_text() == "named by mistake\n"
    assert not list(folder.glob("*.corrupt-*"))


def test_a_flipped_bit_is_a_miss_not_a_wrong_answer(daemon):
    d = daemon()
    answer = d.call("get", problem=gemm(), budget=4)
    d.stop()
    with sqlite3.connect(d.database) as db:
        changed = db.execute("UPDATE best SET config = replace(config, '\"num_warps\":', "
                             "'\"num_wraps\":')").rowcount
    assert changed == 1
    d.start()
    again = d.call("get", problem=gemm(), wait="cached")
    assert again["tier"] != "exact" or again["config"] == answer["config"]
    assert again["tier"] == "default"
    assert "checksum" in d.text()


def test_a_removed_database_is_put_back(daemon):
    d = daemon()
    known = d.call("get", problem=gemm(), budget=4)
    for path in d.folder.glob("cache.db*"):
        path.unlink()
    new = d.call("get", problem=gemm(n=512), budget=4)
    assert new["tier"] == "exact" and new["saved"] is True and "put back" in d.text()
    assert {r[0] for r in d.sql("SELECT key FROM best")} == {known["key"], new["key"]}
    (d.folder / "cache.db").unlink()  # no write follows, so the daemon must put the file back when it stops
    assert d.stop() == 0
    d.start()
    assert d.call("get", problem=gemm(), wait="cached") == known
    assert d.call("get", problem=gemm(n=512), wait="cached") == new


def test_what_is_recorded_or_evicted_after_a_database_was_removed_is_in_the_new_one(daemon):
    d = daemon()
    known = d.call("get", problem=gemm(), budget=4)
    for count, (method, params) in enumerate([
            ("record", {"problem": {"op": "custom:x"}, "trials": [{"config": {"a": 1}, "time_us": 1.0}]}),
            ("evict", {"problem": gemm()})]):
        for path in d.folder.glob("cache.db*"):
            path.unlink()
        d.call(method, **params)
        assert d.text().count("put back") == count + 1
    d.kill()
    assert d.sql("SELECT key FROM best") == []
    assert [k for k, in d.sql("SELECT DISTINCT key FROM trial")] != [known["key"]]


def test_what_is_saved_after_the_log_was_removed_is_there_after_a_kill(daemon):
    d = daemon()
    d.call("get", problem=gemm(), budget=4)
    (d.folder / "cache.db-wal").unlink()
    assert d.call("get", problem=gemm(n=512), budget=4)["saved"] is True
    assert "the log (-wal) of database" in d.text()
    d.kill()
    d.start()
    for n in (256, 512):
        assert d.call("get", problem=gemm(n=n), wait="cached")["tier"] == "exact"


def test_a_replaced_database_is_said_and_left_alone(daemon):
    d = daemon()
    known = d.call("get", problem=gemm(), budget=4)
    d.database.unlink()
    d.database.write_text("of somebody else")
    new = d.call("get", problem=gemm(n=512), budget=4)
    assert new["tier"] == "exact" and new["saved"] is False
    assert d.status()["store"]["unsaved"] == 1 and "removed or replaced" in d.text()
    assert d.call("get", problem=gemm()) == known, "what is in memory is served on"
    for method, params in (("evict", {}), ("record", {"trials": [{"config": {"a": 1}, "time_us": 1.0}]})):
        with pytest.raises(RpcError, match="move it away"):
            d.call(method, problem={"op": "custom:x"}, **params)
    assert d.text().count("row of table trial was not written") <= 1
    assert d.database.read_text() == "of somebody else"
    d.database.unlink()
    eventually(lambda: d.status()["store"]["unsaved"] == 0)
    assert {r[0] for r in d.sql("SELECT key FROM best")} == {known["key"], new["key"]}


def test_an_unreadable_database(folder):
    (folder / "dir.db").mkdir()
    _, text = start_fails(folder, database=folder / "dir.db")
    assert "dir.db" in text
    _, text = start_fails(folder, database="/proc/gemmd/x.db")
    assert "/proc/gemmd" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_read_only_database_and_a_full_disk(daemon, folder):
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", disk],
                      capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    d = Daemon(folder, SYNTHETIC)
    d.database = disk / "cache.db"
    try:
        d.start()
        first = d.call("get", problem=gemm(), budget=4)
        assert first["saved"] is True
        with pytest.raises(OSError), (disk / "filler").open("wb", buffering=0) as f:
            while True:
                f.write(b"x" * 4096)
        unsaved = d.call("get", problem=gemm(n=512), budget=4)
        assert unsaved["tier"] == "exact" and unsaved["saved"] is False, "tuned on from memory"
        assert d.call("get", problem=gemm())["config"] == first["config"], "served on"
        assert d.call("get", problem=gemm(n=512))["config"] == unsaved["config"]
        assert d.status()["store"]["unsaved"] == 1
        (disk / "filler").unlink()
        eventually(lambda: d.status()["store"]["unsaved"] == 0, 30)
        assert d.call("get", problem=gemm(n=512))["saved"] is True
        assert d.stop() == 0
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        _, text = start_fails(folder, database=d.database)
        assert "read-only" in text.lower()
    finally:
        d.stop()
        subprocess.run(["umount", disk], check=False)


def test_no_gpu(folder):
    _, text = start_fails(folder, device="cuda:0", env={"GEMMD_LIBCUDA": "/nonexistent/libcuda.so"})
    assert "libcuda" in text and "ask for cpu instead" in text


def test_no_such_replay_file_and_no_such_device(folder):
    assert "nothing.jsonl" in start_fails(folder, device="replay:/nonexistent/nothing.jsonl")[1]
    assert "cuda" in start_fails(folder, device="tpu:0")[1]


def test_another_bucket_scheme_than_the_databases_is_refused(daemon, folder):
    d = daemon(options=["--bucket", "pow2"])
    d.call("get", problem=gemm(), budget=4)
    d.stop()
    code, text = start_fails(folder, "--bucket", "exact", database=d.database)
    assert code == 2 and "pow2" in text and "exact" in text


def test_an_unknown_configuration_key_is_refused_with_its_line(folder):
    conf = folder / "gemmd.conf"
    conf.write_text("[gemmd]\nbucket = pow2\ncolour = red\n")
    _, text = start_fails(folder, "--config", conf)
    assert "colour" in text and f"{conf}:3" in text


def test_a_runner_of_another_build_is_refused(daemon, folder):
    fake = folder / "runner"
    fake.write_text(f"""#!{sys.executable}
import os, sys, time, msgpack
if "--probe" in sys.argv:
    os.execv("{RUNNER}", ["{RUNNER}", *sys.argv[1:]])
os.write(3, msgpack.packb([2, "hello", {{"build": "0.0.0-other", "pid": os.getpid(),
                                        "driver": "", "class": ""}}]))
time.sleep(30)
""")
    fake.chmod(0o755)
    d = daemon()
    d.stop()
    d.options += ["--runner", str(fake), "--retry-ms", "3000"]
    d.start()
    for _ in range(2):
        with pytest.raises(RpcError) as e:
            d.call("get", problem=gemm(), budget=4)
        assert "0.0.0-other" in e.value.message and "restart gemmd" in e.value.message
    status = d.status()
    assert status["tuning"] == e.value.message and status["runner"]["state"] == "none"
    assert status["runner"]["starts"] == 1, "the next one would be no better"
    assert status["runner"]["deaths"] == 0, "no kernel crashed"
    assert "restart gemmd" in d.ctl("status").stdout
    fake.unlink()
    fake.symlink_to(RUNNER)
    eventually(lambda: d.status()["tuning"] == "on")
    assert d.call("get", problem=gemm(), budget=4)["source"] == "tuned"


def test_a_late_idle_does_not_end_the_watch_of_the_next_order(daemon, folder):
    """The runner reports idle while the next order is on its way, and then hangs."""
    fake = folder / "runner"
    d = daemon(options=["--hang-limit-ms", "500"])
    build = d.status()["build"]
    fake.write_text(f"""#!{sys.executable}
import os, sys, time, msgpack
if "--probe" in sys.argv:
    os.execv("{RUNNER}", ["{RUNNER}", *sys.argv[1:]])
def say(*message):
    os.write(3, msgpack.packb(message))
def order():
    while True:
        for message in unpacker:
            if message[0] == 0 and message[2] == "tune":
                return message[1]
        unpacker.feed(os.read(3, 65536) or sys.exit(0))
unpacker = msgpack.Unpacker()
say(2, "hello", {{"build": "{build}", "pid": os.getpid(), "driver": "", "class": ""}})
for _ in range(2):
    number = order()
    if os.path.exists("{folder}/late"):
        say(2, "attempt", {{"job": 0, "stage": "idle", "limit_ms": 0}})
        open("{folder}/late", "a").write("said")
        time.sleep(60)
    say(1, number, {{"name": "invalid", "message": "no such thing", "survives": True}}, None)
""")
    fake.chmod(0o755)
    d.stop()
    d.options += ["--runner", str(fake)]
    d.start()
    with pytest.raises(RpcError, match="no such thing"):
        d.call("get", problem=gemm(), budget=4)
    (folder / "late").touch()
    with d.connect() as c:
        c.send("get", problem=gemm(M=128), budget=4)
        eventually(lambda: (folder / "late").read_text())
        (folder / "late").unlink()
        eventually(lambda: d.status()["runner"]["deaths"] == 1)


def test_ready_in_time_with_many_keys(daemon):
    d = daemon()
    with d.connect() as c:
        for i in range(5000):
            c.send("put", problem={"op": "custom:many", "i": i}, config={"x": i}, time_us=1)
            if i % 50 == 49:
                c.wait(c.next_id)
    d.stop()
    began = time.monotonic()
    d.start()
    eventually(lambda: not d.status()["loading"])
    assert d.status()["keys"] == 5000
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("share", ["abc", "0", "-1", "1.5", "nan", "30", "0,3", ""])
def test_a_share_of_memory_that_is_none(folder, share):
    code, said = start_fails(folder, env={"GEMMD_MEMORY_SHARE": share})
    assert code == 2 and f'GEMMD_MEMORY_SHARE is "{share}", but takes a fraction above 0 and up to 1' in said


@pytest.mark.parametrize("share,options", [("0.3", []), ("abc", ["--memory-percent", "20"])])
def test_a_share_of_memory(daemon, share, options):
    assert daemon(env={"GEMMD_MEMORY_SHARE": share}, options=options).status()["pid"]


def test_a_socket_whose_lock_somebody_removed_is_not_taken_over(daemon, folder):
    d = daemon()
    (folder / f"{d.socket.name}.lock").unlink()
    code, said = start_fails(folder, socket=d.socket)
    assert code == 75 and "another gemmd listens on" in said
    assert d.status()["pid"] == d.process.pid
