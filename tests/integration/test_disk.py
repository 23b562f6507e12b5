# SPDX-License-Identifier: Apache-2.0
"""A full disk, which a limit of file sizes imitates without privileges, and other readers of the
database. (test_life.py fills a real file system, where mounting is allowed.)"""
import json
import os
import resource
import sqlite3
import subprocess
import sys

import pytest

from conftest import Daemon, RpcError, SYNTHETIC, eventually, gemm

READ = """
import sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
print(db.execute("SELECT count(*) FROM current_best").fetchone()[0],
      db.execute("PRAGMA integrity_check").fetchone()[0])
"""


def limit_files(d, full):
    """Limits files to half the size of the database's log: for the daemon, a full disk (EFBIG)."""
    hard = resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE)[1]
    half = d.database.with_name(d.database.name + "-wal").stat().st_size // 2
    assert half > 2 * d.log.stat().st_size, "there must be room for words"
    resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (half if full else hard, hard))


def test_serves_and_tunes_on_without_room(daemon):
    d = daemon()
    with d.connect() as c, d.connect() as told:
        first = c.call("get", problem=gemm(), budget=4)
        assert told.call("subscribe")["subscribed"]
        limit_files(d, True)
        unsaved = [c.call("get", problem=gemm(n=512 * i), budget=4) for i in (1, 2, 3)]
        told.call("status")
        assert [n["answer"] for _, n in told.notifications] == unsaved
        assert all(a["tier"] == "exact" and a["saved"] is False for a in unsaved)
        assert c.call("get", problem=gemm()) == first, "what is known is served on"
        store = c.call("status")["store"]
        assert store["unsaved"] == 3 and store["disk_full"] is True and store["lost_trials"] > 0
        assert c.call("list", what="best")["total"] == 1, "reading goes on"
        limit_files(d, False)
        eventually(lambda: c.call("status")["store"]["unsaved"] == 0)
        store = c.call("status")["store"]
        assert store["disk_full"] is False and store["bests"] == 4
        saved = [c.call("get", problem=gemm(n=512 * i)) for i in (1, 2, 3)]
        numbers = [a["generation"] for a in saved]
        assert numbers == [2, 3, 4] and {a["generation"] for a in unsaved} == {0}
        assert saved == [{**a, "saved": True, "generation": g} for a, g in zip(unsaved, numbers)]
    assert d.text().count("until there is room") == 1, "said once, not with every write"
    d.kill()
    d.start()
    assert [d.call("get", problem=gemm(n=512 * i), wait="cached") for i in (1, 2, 3)] == saved


def test_idle_is_not_who_has_what_no_disk_has(daemon):
    """A daemon with unsaved answers does not exit when idle: it would lose them."""
    d = daemon(options=["--idle-exit-s", "1"])
    with d.connect() as c:
        assert c.call("get", problem=gemm(), budget=4)["saved"]
        limit_files(d, True)
        assert not c.call("put", problem={"op": "custom:x"}, config="A=1", time_us=5)["saved"]
    with pytest.raises(subprocess.TimeoutExpired):
        d.process.wait(2.5)
    limit_files(d, False)
    assert d.process.wait(15) == 0 and "never saved" not in d.text()
    d.start()
    assert d.call("get", problem={"op": "custom:x"}, wait="cached")["saved"]


def test_gemmctl_says_what_is_not_saved(daemon, folder):
    """An export contains saved rows only: gemmctl must report unsaved rows while the daemon still has them in memory."""
    d = daemon()
    size = ["--m", 256, "--k", 256]
    assert "saved" not in d.ctl("get", *size, "--n", 256, "--budget", 4).stderr
    assert d.ctl("list").stderr == d.ctl("export").stderr == ""
    for i in range(20):  # these make the log longer by more than the database: half of it has room for a copy
        d.call("record", problem={"op": "custom:log", "n": i}, trials=[{"config": {"a": 1}, "status": "ok", "time_us": 5.0}])
    limit_files(d, True)
    got = d.ctl("get", *size, "--n", "512", "--budget", 4)
    assert "this answer could not be saved and is only" in got.stderr
    assert "2 of these answers" in d.ctl("get", *size, "--n", "512,1024,256", "--budget", 4).stderr
    known = ["get", *size, "--n", "512", "--wait", "cached"]
    assert "saved" not in d.ctl(*known, "-q").stderr + d.ctl(*known, "--json").stderr
    missing = f"2 answers are only in the daemon's memory and not in this %s: make room on the disk of {d.database}"
    listed = d.ctl("list")
    assert missing % "list" in listed.stderr and missing not in d.ctl("list", "-q").stderr
    assert "memory" not in d.ctl("list", "--what", "runs").stderr
    for words in (["export"], ["export", "-q"], ["export", "--to", folder / "x.json"],
                  ["export", "--format", "unsloth", "--to", folder / "x"]):
        partial = d.ctl(*words, check=False)
        assert partial.returncode == 1 and missing % "export" in partial.stderr, (words, partial)
    assert len(json.loads((folder / "x.json").read_text())["rows"]) == 1, "what there is is written"
    copied = d.ctl("backup", folder / "copy.db", check=False)
    assert copied.returncode == 1 and missing % "copy" in copied.stderr, copied.stderr
    assert copied.stdout.strip() == str(folder / "copy.db")
    imported = d.ctl("import", folder / "x.json", check=False)
    assert missing.replace("this %s", "the database") in imported.stderr and "0 imported, 1 skipped" in imported.stdout
    assert "memory" not in d.ctl("import", "-q", folder / "x.json", check=False).stderr
    limit_files(d, False)
    eventually(lambda: d.status()["store"]["unsaved"] == 0)
    assert d.ctl("backup", folder / "whole.db").stderr == ""
    assert d.ctl("export", "-q").stderr == "" and "memory" not in d.ctl(*known).stderr
    apart = d.ctl("get", *size, "--n", "512", "--restrict", "BLOCK_SIZE_M=64", "--budget", 4)
    assert "winner of a restricted search" in apart.stderr + apart.stdout and "memory" not in apart.stderr


def test_show_and_why_name_the_row_that_answers_not_an_older_one(daemon):
    d = daemon()
    with d.connect() as c:
        tuned = c.call("get", problem=gemm(), budget=8)
        other = next(t["config"] for t in c.list("trials", key=tuned["key"], status="ok")
                     if t["config"] != tuned["config"])
        limit_files(d, True)
        limit_files(d, True)
        pinned = c.call("pin", problem=gemm(), config=other)
        fresh = c.call("get", problem=gemm(n=512), budget=4)
        assert pinned["saved"] is fresh["saved"] is False
        for answer, size in (pinned, 256), (fresh, 512):
            shown, why = c.call("show", key=answer["key"]), c.call("why", key=answer["key"])
            assert shown["answer"]["config"] == why["answer"]["config"] == answer["config"]
            for row in shown["best"], why["row"]:
                assert row["config"] == answer["config"] and row["source"] == answer["source"]
                assert row["time_us"] == answer["time_us"] and row["generation"] == answer["generation"]
                assert (row["uid"], row["trial"]) == (-1, 0)
                assert row["problem"]["N"] == size and row["atol"] == 0.01
            assert why["trial"] is None and why["confidence"] != "high"
            assert any("memory only" in s for s in why["doubts"]) and not any("kept" in s for s in why["doubts"])
        shown = dict(line.split("  ", 1) for line in d.ctl("show", pinned["key"]).stdout.splitlines()
                     if "  " in line)
        assert shown["asked by uid"].strip() == "-"
        assert float(shown["time us"]) == pytest.approx(pinned["time_us"], rel=0.01)
        assert "in no database yet" in d.ctl("why", pinned["key"]).stdout
        limit_files(d, False)
        eventually(lambda: c.call("status")["store"]["unsaved"] == 0)
        shown, why = c.call("show", key=pinned["key"]), c.call("why", key=pinned["key"])
        assert shown["best"]["uid"] == why["row"]["uid"] == os.getuid()
        assert shown["best"]["config"] == why["row"]["config"] == other


def test_a_disk_that_has_room_again_is_not_said_to_be_full(daemon):
    """The status `disk_full` ends also when no row is left to be written."""
    d = daemon()
    key = d.call("put", problem={"op": "custom:saved"}, config={"x": 1}, time_us=1)["key"]
    limit_files(d, True)
    with pytest.raises(RpcError, match="disk_full"):
        d.call("evict", key=key)
    store = d.status()["store"]
    assert store["disk_full"] and store["unsaved"] == 0
    limit_files(d, False)
    eventually(lambda: not d.status()["store"]["disk_full"])


def test_a_stop_says_that_answers_may_be_lost(daemon):
    d = daemon()
    d.call("put", problem={"op": "custom:saved"}, config={"x": 1}, time_us=1)
    limit_files(d, True)
    d.call("put", problem={"op": "custom:unsaved"}, config={"x": 1}, time_us=1)
    stopped = d.ctl("stop")
    assert "gemmd has stopped" in stopped.stdout and "could not write at its end are lost" in stopped.stderr
    assert d.process.wait(10) == 0
    d.start()
    assert d.ctl("stop").stderr == ""


def test_a_pinned_job_answers_from_the_file_without_room(daemon):
    """Unsaved rows belong to no generation, neither before nor after saving."""
    d = daemon()
    with d.connect() as c, d.connect() as job, d.connect() as empty:
        def put(n, value):
            return c.call("put", problem={"op": "custom:mine", "n": n}, config={"A": value}, time_us=5)

        def get(rank, n):
            return rank.call("get", problem={"op": "custom:mine", "n": n}, wait="cached")["config"]

        def check_answers():
            assert get(job, 1) == get(empty, 1) == {"A": 1}
            for rank in (job, empty):
                with pytest.raises(RpcError, match="nothing was known in the pinned generation"):
                    get(rank, 2)
        assert put(1, 1)["saved"]
        assert empty.call("hello", generation=-1)["pinned"] == 1
        limit_files(d, True)
        assert not put(2, 1)["saved"]
        assert job.call("hello", generation=-1)["pinned"] == 1
        for value in (2, 3):
            assert not put(1, value)["saved"] and not put(2, value)["saved"]
            check_answers()
            assert get(c, 1) == get(c, 2) == {"A": value}
        limit_files(d, False)
        eventually(lambda: c.call("status")["store"]["unsaved"] == 0)
        check_answers()
        assert put(2, 4)["saved"] and get(c, 2) == {"A": 4}
        check_answers()


def test_an_evict_that_is_refused_takes_nothing_away(daemon):
    d = daemon()
    with d.connect() as c:
        first = c.call("get", problem=gemm(), budget=4)
        limit_files(d, True)
        with pytest.raises(RpcError, match="disk_full"):
            c.call("evict", problem=gemm())
        assert c.call("get", problem=gemm(), wait="cached") == first
        limit_files(d, False)
        assert c.call("evict", problem=gemm())["removed"] > 1
        assert c.call("get", problem=gemm(), wait="cached")["tier"] == "default"


def test_a_stop_without_room_says_what_is_lost(daemon):
    d = daemon()
    first = d.call("get", problem=gemm(), budget=4)
    limit_files(d, True)
    assert d.call("get", problem=gemm(n=512), budget=4)["saved"] is False
    assert d.stop() == 0
    assert "1 bests were never saved" in d.text()
    d.start()
    assert d.call("get", problem=gemm(), wait="cached") == first
    assert d.call("get", problem=gemm(n=512), wait="cached")["tier"] != "exact"


def test_words_without_room_end_nothing(daemon):
    """The daemon goes on although it cannot write its log file, which has the same limit of size."""
    d = daemon(options=["--log-level", "debug"])
    hard = resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (64, hard))
    answer = d.call("get", problem=gemm(), budget=4)
    assert answer["tier"] == "exact" and answer["saved"] is False
    assert d.process.poll() is None
    resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    eventually(lambda: d.status()["store"]["unsaved"] == 0)


def test_a_runner_without_room_fails_and_does_not_die(daemon):
    d = daemon("cpu", own_cache=True)
    asked = {"problem": gemm(dtype_in="fp32"), "budget": 2}
    with d.connect() as c:
        c.call("get", problem=gemm(n=512), budget=1)
        runner = d.runner_pid()
        hard = resource.prlimit(runner, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(runner, resource.RLIMIT_FSIZE, (64, hard))
        for _ in range(2):
            with pytest.raises(RpcError) as e:
                c.call("get", **asked)
            assert e.value.name in ("disk_full", "no_config") and "File too large" in e.value.message, e.value
        status = c.call("status")
        assert status["runner"]["deaths"] == 0 and status["tuning"] == "on"
        resource.prlimit(runner, resource.RLIMIT_FSIZE, (hard, hard))
        assert c.call("get", **asked)["tier"] == "exact"


def read_apart(d, path, other=False):
    """Reads in a separate process, as the owner or as another user."""
    d.folder.chmod(0o755)
    out = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True,
                         **({"user": 65534, "group": 65534} if other else {}))
    return out.stdout.split() if out.returncode == 0 else out.stderr.strip().split("\n")[-1]


@pytest.mark.parametrize("killed", [False, True])
def test_the_owner_reads_while_it_runs_and_after_and_others_read_a_copy(daemon, folder, killed):
    d = daemon()
    other = os.geteuid() == 0
    with d.connect() as c:
        for i in (1, 2, 3):
            c.call("get", problem=gemm(n=512 * i), budget=4)
        assert read_apart(d, d.database) == ["3", "ok"]
        copy = folder / "copy.db"
        c.call("backup", path=str(copy))
        c.call("get", problem=gemm(n=256), budget=4)
        assert read_apart(d, d.database) == ["4", "ok"]
    if other:
        copy.chmod(0o644)
        assert read_apart(d, copy, other) == ["3", "ok"]
        assert "unable to open database file" in read_apart(d, d.database, other)
    if killed:
        d.kill()
    else:
        assert d.stop() == 0
    assert read_apart(d, d.database) == ["4", "ok"]
    with sqlite3.connect(f"file:{copy}?mode=ro", uri=True) as db:
        assert db.execute("SELECT count(*) FROM current_best").fetchone() == (3,)
    restored = Daemon(folder, SYNTHETIC, cache=d.cache)
    restored.database = copy
    restored.start()
    try:
        assert restored.call("get", problem=gemm(n=512), wait="cached")["tier"] == "exact"
        assert restored.call("get", problem=gemm(n=256), wait="cached")["tier"] != "exact"
    finally:
        assert restored.stop() == 0
