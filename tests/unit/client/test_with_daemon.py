# SPDX-License-Identifier: Apache-2.0
"""gemmctl and a small training job against the real daemon."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

BUILD = pathlib.Path(os.environ["GEMMD_BUILD"])
GEMMCTL = BUILD / "client" / "gemmctl"
JOB = os.environ["GEMMD_TEST_JOB"]
PATIENCE = float(os.environ.get("GEMMD_TEST_PATIENCE", "1"))
PROBLEM = ["--mode", "forward", "--m", "64", "--n", "64", "--k", "64", "--dtype", "fp32"]


class Home:
    """A user's directories, with gemmctl in them."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "run").mkdir(parents=True)
        self.env = {**{k: v for k, v in os.environ.items() if not k.startswith("GEMMD_SO")},
                    "GEMMD_DAEMON": str(BUILD / "daemon" / "gemmd"), "GEMMD_SYSTEM": "0",
                    "GEMMD_RUNNER": str(BUILD / "runner" / "gemmd-runner"),
                    "XDG_RUNTIME_DIR": str(folder / "run"), "XDG_STATE_HOME": str(folder / "state"),
                    "XDG_CACHE_HOME": str(folder / "cache")}

    def ctl(self, *args, code=0):
        result = subprocess.run([GEMMCTL, *map(str, args)], capture_output=True, text=True,
                                env=self.env, timeout=120 * PATIENCE)
        log = self.folder / "state" / "gemmd" / "cpu.log"
        assert result.returncode == code, (args, result.stdout, result.stderr,
                                           log.exists() and log.read_text())
        return result

    def json(self, *args, code=0):
        return json.loads(self.ctl(*args, "--json", code=code).stdout)


@pytest.fixture
def new_home():
    made = []

    def make():
        home = Home(pathlib.Path(tempfile.mkdtemp(prefix="gemmctl-")))
        made.append(home)
        home.ctl("start", "--device", "cpu")
        return home

    yield make
    for home in made:
        home.ctl("stop")
        home.ctl("status", code=3)
        shutil.rmtree(home.folder)


def run_job(home, job=JOB):
    return subprocess.Popen([job], env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def result_of(job):
    out, err = job.communicate(timeout=120 * PATIENCE)
    assert job.returncode == 0, err
    return out.split()


def test_jobs_get_one_answer_and_the_right_result(new_home):
    home = new_home()
    results = [result_of(j) for j in [run_job(home) for _ in range(8)]]
    assert len({tuple(r) for r in results}) == 1, results
    tier, source, where, key, wrong, _ = results[0]
    assert (tier, source, where, wrong) == ("exact", "tuned", "local", "0")
    assert home.json("status")["jobs"]["done"] == 1
    assert result_of(run_job(home)) == results[0]
    assert home.json("show", key[:8])["best"]["key"] == key


def test_eight_ranks_with_a_kernel_of_their_own_measure_it_once(new_home):
    home = new_home()
    ranks = [run_job(home, os.environ["GEMMD_TEST_LEASE_JOB"]) for _ in range(8)]
    results = [j.communicate(timeout=120 * PATIENCE) for j in ranks]
    assert all(j.returncode == 0 for j in ranks), results
    words = sorted(out.splitlines()[0] for out, _ in results)
    assert words == ["hit hit BLOCK=256 fast=true"] * 7 + ["lease hit BLOCK=256 fast=true"]
    known = json.loads(results[0][0].splitlines()[1])
    assert {k["config"]["BLOCK"]: (k["status"], k["time_us"]) for k in known} == {
        64: ("ok", 9.5), 128: ("resource", None), 256: ("ok", 4.5)}
    row, = home.json("list")
    assert row["problem"]["user"] == os.getuid()
    promoted = home.json("promote", row["key"][:8])
    assert promoted["key"] != row["key"] and promoted["config"] == row["config"]
    assert len(home.json("trials", "custom:rank source=0123abcd n=4096")) == 3


def test_a_pinned_rank_keeps_its_answers(new_home):
    home = new_home()
    lines = result_of(run_job(home, os.environ["GEMMD_TEST_GENERATION_JOB"]))
    assert " ".join(lines) == ("pinned 1 free -1 improved A=2 1 heard 1 free A=2 rank A=1 other A=1 "
                               "bad invalid")
    problem = "custom:job n=4096"
    assert home.json("get", problem)[0]["config"] == {"A": 2}
    first = min(r["generation"] for r in home.json("list", "--what", "history"))
    assert home.json("get", problem, "--generation", first)[0]["config"] == {"A": 1}
    home.env["GEMMD_GENERATION"] = str(first)
    assert home.json("get", problem)[0]["config"] == {"A": 1}
    assert home.json("get", problem, "--generation", "now")[0]["config"] == {"A": 2}
    assert "not there yet" in home.ctl("get", problem, "--generation", 99, code=1).stderr
    home.env["GEMMD_GENERATION"] = "999"  # a number that this database lacks
    assert home.json("status")["generation"] > first and home.json("list")
    assert home.json("show", problem)["best"]["config"] == {"A": 2}
    assert home.json("evict", problem)["removed"] > 0
    assert "runs already" in home.ctl("start", "--device", "cpu").stdout
    home.ctl("stop")
    home.ctl("start", "--device", "cpu")
    del home.env["GEMMD_GENERATION"]


def test_a_persons_session(new_home):
    home = new_home()
    tuned, = home.json("tune", *PROBLEM, "--budget", 4)
    hit, = home.json("get", *PROBLEM)
    assert hit["tier"] == "exact" and hit["config"] == tuned["config"] and hit["round_trip_us"] > 0
    trials = home.json("trials", *PROBLEM)
    assert len(trials) >= 4 and all(t["key"] == hit["key"] for t in trials)
    config = " ".join(f"{k}={json.dumps(v).strip(chr(34))}" for k, v in trials[-1]["config"].items())
    assert home.json("check", *PROBLEM, "--config", config)[0]["valid"]
    bench, = home.json("bench", *PROBLEM, "--config", config)
    assert bench["source"] == "partial" and bench["config"] == trials[-1]["config"]
    assert home.json("get", *PROBLEM)[0]["config"] == tuned["config"]
    assert home.json("pin", *PROBLEM, "--config", config)["source"] == "manual"
    assert home.json("get", *PROBLEM)[0]["config"] == bench["config"]
    assert home.json("unpin", hit["key"])["config"] == tuned["config"]
    sizes = next(p["values"] for p in home.json("space", *PROBLEM)["params"]
                 if p["name"] == "BLOCK_SIZE_M")
    best = tuned["config"]["BLOCK_SIZE_M"]  # on the CPU noise decides which config wins
    within, = home.json("get", *PROBLEM, "--restrict", f"BLOCK_SIZE_M={best}")
    assert within["source"] == "tuned" and within["config"] == tuned["config"]
    other = next(size for size in sizes if size != best)
    restricted, = home.json("get", *PROBLEM, "--restrict", f"BLOCK_SIZE_M={other}", "--budget", 2)
    assert restricted["source"] == "partial" and restricted["config"]["BLOCK_SIZE_M"] == other
    assert home.json("space", *PROBLEM)["legal"] > home.json(
        "space", *PROBLEM, "--restrict", "BLOCK_SIZE_M=16")["legal"] > 0
    for what in ("best", "history", "trials", "modules", "quarantine", "runs", "devices", "events"):
        rows = home.json("list", "--what", what)
        assert isinstance(rows, list) and (rows or what == "quarantine")
        home.ctl("list", "--what", what)
    assert home.json("evict", hit["key"])["removed"] > 0
    assert "nothing is known" in home.ctl("show", *PROBLEM, code=1).stderr


def test_export_into_an_empty_database_gives_equal_rows(new_home):
    old, new = new_home(), new_home()
    for mode in ("forward", "dX"):
        old.ctl("tune", "--mode", mode, "--m", "32,64", "--n", 64, "--k", 64, "--budget", 2)
    path = old.folder / "export.json"
    old.ctl("export", "--output", path)
    assert new.json("import", path) == {"imported": 4, "skipped": []}

    def essence(home):
        """Rows without database numbers and without their source."""
        own = ("generation", "trial", "uid", "source")
        return sorted(({k: v for k, v in row.items() if k not in own} for row in
                       home.json("list")), key=lambda row: row["key"])

    for a, b in zip(essence(new), essence(old), strict=True):
        assert {k: (a[k], b[k]) for k in a if a[k] != b[k]} == {}
        assert a["stamp"] and a["measured"] > 0 and a["module"] and a["created_s"] > 0
    assert {row["source"] for row in new.json("list")} == {"imported"}
    again = new.folder / "export.json"
    new.ctl("export", "--output", again)
    third = new_home()
    assert third.json("import", again) == {"imported": 4, "skipped": []}
    assert essence(third) == essence(old)
    hint, = new.json("get", "--m", 64, "--n", 64, "--k", 64, "--wait", "cached")
    assert (hint["tier"], hint["source"], hint["module"]) == ("near", "imported", "")
    copy = new.folder / "copy.db"
    new.ctl("backup", copy)
    assert copy.stat().st_size > 0
    assert new.ctl("backup", copy, code=1).stderr.count("\n") == 1
