# SPDX-License-Identifier: Apache-2.0
"""Answers counted by user, job and tier: `gemmctl jobs`, `gemmctl why --job`, and who may fill what."""
import contextlib
import json
import os
import signal
import sqlite3

import pytest
from conftest import DATA, SYNTHETIC, Daemon, RpcError, eventually, gemm

SMALL, LARGE = gemm(m=512), gemm(m=4096, k=512)


def client(d, job):
    c = d.connect()
    c.call("hello", version=1, job=job)
    return c


def jobs(d):
    """{job: (exact, lower)}"""
    with d.connect() as c:
        return {r["job"]: (r["exact"], r["near"] + r["portfolio"] + r["defaults"]) for r in c.list("jobs")}


def test_a_job_on_a_default_learns_what_the_default_cost(daemon):
    d = daemon()
    with client(d, "slurm:1") as first, client(d, "slurm:2") as second:
        for problem in (SMALL, SMALL, LARGE):
            assert first.call("get", problem=problem, wait="cached")["tier"] == "default"
        tuned = second.call("get", problem=SMALL)
        assert tuned["tier"] == "exact" and second.call("get", problem=SMALL) == tuned
    assert jobs(d) == {"slurm:1": (0, 3), "slurm:2": (2, 0)}

    [job] = d.ctl_json("why", "--job", "1")
    assert (job["job"], job["uid"], job["default"], job["exact"]) == ("slurm:1", os.getuid(), 3, 0)
    rows = {r["problem"]["M"]: r for r in job["products"]}
    assert (rows[512]["answers"], rows[4096]["answers"]) == (2, 1)
    row = rows[512]
    assert row["key"] == tuned["key"] and row["best_us"] == tuned["time_us"]
    # the default is the reference kernel of the run, or was a trial of the search
    assert row["served_us"] == pytest.approx(tuned["reference_us"], rel=0.1)
    assert row["lost_us"] == row["served_us"] - row["best_us"]
    assert rows[4096]["best_us"] is None and rows[4096]["lost_us"] is None
    said = d.ctl("why", "--job", "slurm:1").stdout
    assert "evidence for 1 of 2 rows" in said and "no evidence: never measured" in said
    assert "gemmctl tune 'grouped_gemm " in said and "M=4096" in said.split("\ndo ")[1]
    [other] = d.ctl_json("why", "--job", "2")
    assert other["products"] == [] and other["exact"] == 2
    assert "every answer was of the tier exact" in d.ctl("why", "--job", "2").stdout

    # a clean stop writes the counts, and a new gemmd adds to them
    with client(d, "slurm:1") as first:
        first.call("get", problem=SMALL)
    assert d.stop() == 0
    assert d.sql("SELECT exact, defaults FROM job WHERE job = 'slurm:1'") == [(1, 3)]
    d.start()
    with client(d, "slurm:1") as first:
        first.call("get", problem=SMALL)
    assert jobs(d) == {"slurm:1": (2, 3), "slurm:2": (2, 0)}
    assert len(d.sql("SELECT * FROM served WHERE tier = 'exact' AND job = 'slurm:1'")) == 1


def test_each_way_of_an_answer_counts(daemon):
    d = daemon(options=["--runner-nice", "0"])
    with client(d, "slurm:1") as c:
        c.call("tune", problem=SMALL, budget=4)
        for _ in range(3):  # the second and third are of the memo
            c.call("get", problem=SMALL)
        for _ in range(2):
            assert len(c.call("get_many", problems=[SMALL, SMALL], wait="cached")["answers"]) == 2
        assert jobs(d) == {"slurm:1": (8, 0)}
        assert len(c.call("get_many", problems=[SMALL, LARGE], wait="cached")["answers"]) == 2
        assert c.call("get", problem=gemm(m=8192, n=1024), deadline_ms=1)["tier"] != "exact"
        assert jobs(d)["slurm:1"] == (9, 2)
    hits = d.status()["hits"]
    assert hits == 8, "all but the tuning: lists and answers of lower tiers are no hits"


def test_a_pinned_list_counts_once(daemon):
    """The ledger reads the rows of the generation first; then the request begins anew."""
    d = daemon()
    generation = d.call("tune", problem=SMALL, budget=2)["generation"]
    d.call("tune", problem=SMALL, budget=3)
    with d.connect() as c:
        c.call("hello", version=1, job="slurm:1", generation=generation)
        answers = c.call("get_many", problems=[SMALL, LARGE, SMALL], wait="cached")["answers"]
    assert [a["tier"] for a in answers] == ["exact", "default", "exact"]
    assert jobs(d)["slurm:1"] == (2, 1)


def test_a_client_without_a_name_is_its_process_group(daemon):
    d = daemon()
    d.call("get", problem=SMALL, wait="cached")
    assert jobs(d) == {f"pgid:{os.getpgid(0)}": (0, 1)}
    words = ["get", "--m", 512, "--n", 256, "--k", 256, "--experts", 4, "--topk", 2, "--wait", "cached"]
    for env, name in (({"SLURM_JOB_ID": "4711", "TORCHELASTIC_RUN_ID": "a"}, "slurm:4711"),
                      ({"TORCHELASTIC_RUN_ID": "my run\x1b[31m"}, "torchelastic:my_run_[31m"),
                      ({"TORCHELASTIC_RUN_ID": "none"}, f"torchrun:{os.getpid()}")):
        d.ctl(*words, env=env)
        assert jobs(d)[name] == (0, 1), env
    for end in "ab":  # two long names stay two
        d.ctl(*words, env={"TORCHELASTIC_RUN_ID": "x" * 500 + end})
    long = [j for j in jobs(d) if j.startswith("torchelastic:xxx")]
    assert len(long) == 2 and all(len(j) == 63 for j in long)


def test_a_bad_name_is_refused_and_the_connection_stays(daemon_of_module):
    with daemon_of_module.connect() as c:
        for bad in ("", "x" * 64, "a b", "a\x1b[2J", "a\nb", "a\0b", "\u00e4", 7, [], {"a": 1}, b"slurm:1"):
            with pytest.raises(RpcError, match="visible ASCII") as e:
                c.call("hello", version=1, job=bad)
            assert e.value.name == "invalid" and e.value.survives, bad
        c.call("hello", version=1, job="x" * 63)
        c.call("get", problem=SMALL, wait="cached")
    assert jobs(daemon_of_module)["x" * 63] == (0, 1)
    refused = daemon_of_module.ctl("why", "--job", "none-of-these", check=False)
    assert refused.returncode == 1 and 'no job "none-of-these"' in refused.stderr
    for words in (["--job", ""], ["--job", "1", "--m", "7"], ["--all", "--m", "7"]):
        assert daemon_of_module.ctl("why", *words, check=False).returncode == 2, words


def test_a_thousand_names_fill_nothing(daemon):
    d = daemon()
    with d.connect() as c:
        for i in range(1000):
            c.call("hello", version=1, job=f"slurm:{i}")
            c.call("get", problem=SMALL, wait="cached")
    found = jobs(d)  # 32 with a name, and as many more for each minute that this took
    assert 33 <= len(found) < 500 and sum(lower for _, lower in found.values()) == 1000
    assert found[""][1] == 1000 - (len(found) - 1)


def test_counts_that_cannot_be_written_are_written_later(daemon):
    d = daemon()
    with client(d, "slurm:1") as c:
        c.call("get", problem=SMALL, wait="cached")
        assert jobs(d) == {"slurm:1": (0, 1)}
        c.call("get", problem=SMALL, wait="cached")
        with contextlib.closing(sqlite3.connect(d.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert jobs(d) == {"slurm:1": (0, 1)}, "the list shows what is in the database"
            other.execute("ROLLBACK")
        c.call("get", problem=LARGE, wait="cached")
        assert jobs(d) == {"slurm:1": (0, 3)}


def test_counts_are_written_after_a_time(daemon):
    d = daemon(options=["--jobs-s", "1"])
    d.call("get", problem=SMALL, wait="cached")
    eventually(lambda: d.sql("SELECT defaults FROM job") == [(1,)])


def test_jobs_of_every_daemon_of_the_host(folder, shared_cache):
    """Two daemons of a database: each has counts of its own until a list asks it."""
    (folder / "gemmd").mkdir(mode=0o750)
    env, name = {"XDG_RUNTIME_DIR": str(folder), "GEMMD_SYSTEM": "0", "GEMMD_SOCKET": ""}, folder.name
    with contextlib.ExitStack() as stack:
        for socket, device in (("a", SYNTHETIC), ("b", f"replay:{DATA / 'synthetic-hopper.jsonl'}")):
            d = Daemon(folder, device, cache=shared_cache)
            d.socket = folder / "gemmd" / f"{socket}.sock"
            stack.callback(lambda d=d: d.stop() == 0 or pytest.fail(d.text()))
            d.start()
            with client(d, f"slurm:{name}") as c:
                c.call("get", problem=SMALL, wait="cached")
        listed = json.loads(d.ctl("jobs", "--all", "--json", env=env).stdout)
        [database] = [each for each in listed if each["database"] == str(d.database)]
        assert [(r["job"], r["defaults"], r["keys"]) for r in database["rows"]] == [(f"slurm:{name}", 2, 2)]
        assert len(database["others"]) == 1
        [job] = json.loads(d.ctl("why", "--job", name, "--all", "--json", env=env).stdout)
        assert job["default"] == 2 and len({r["key"] for r in job["products"]}) == 2
        # a daemon that hangs is named, and the counts of the others are shown
        d.process.send_signal(signal.SIGSTOP)
        try:
            said = d.ctl("why", "--job", name, "--all", check=False, env=env)
        finally:
            d.process.send_signal(signal.SIGCONT)
        assert said.returncode == 3 and "2 default" in said.stdout and "`hello`" in said.stderr, said
