# SPDX-License-Identifier: Apache-2.0
"""gemmctl for people who run machines: all daemons of a host, output that goes on, many keys at once."""
import json
import os
import pty
import signal
import socket
import subprocess
import time

import pytest

from fake_gemmd import ANSWER, BEST, GEMMCTL, ROOT, Fake, Refusal, ctl, ctl_json, environment, rows_of

CLASS = "c"
EVENTS = [{"id": i, "created_s": 1700000000 + i, "kind": "tuned", "uid": 0, "text": f"text {i}"} for i in range(1, 4)]


def status_of(name, database):
    return {"device": {"kind": "cuda", "uuid": name, "name": "GPU X", "class": CLASS}, "database": database,
            "tuning": "on", "uptime_s": 7200, "keys": 3, "runner": {"state": "none", "deaths": 0}}


@pytest.fixture
def host(folder):
    """Two daemons of one database, and the socket of a dead daemon."""
    sockets = folder / "run" / "gemmd"
    sockets.mkdir(parents=True, mode=0o700)
    members = []
    for name in ("GPU-a", "GPU-b"):
        (folder / name).mkdir()
        fake = Fake(folder / name)
        fake.answers["status"] = status_of(name, "/db")
        os.symlink(fake.path, sockets / f"{name}.sock")
        members.append(fake)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(sockets / "GPU-dead.sock"))
    yield members, {"XDG_RUNTIME_DIR": str(folder / "run"), "GEMMD_SYSTEM": "0"}
    for fake in members:
        fake.stop()


def test_status_of_all_daemons_has_a_line_for_each(host):
    fakes, env = host
    out = ctl(None, "status", "--all", code=3, **env)
    assert [line.split()[0] for line in out.stdout.splitlines()] == ["DEVICE", "GPU-a", "GPU-b", "GPU-dead"]
    assert "no answer" in out.stdout and "gemmctl: GPU-dead: no gemmd answers" in out.stderr
    rows = json.loads(ctl(None, "status", "--all", "--json", code=3, **env).stdout)
    assert [r["device"] for r in rows] == ["GPU-a", "GPU-b", "GPU-dead"]
    assert rows[0]["status"]["keys"] == 3 and rows[2]["error"]["name"] == "unreachable"


def test_rows_of_a_shared_database_are_listed_once(host):
    fakes, env = host
    for fake in fakes:
        fake.answers["list"] = rows_of(BEST)
    rows = json.loads(ctl(None, "list", "--all", "--json", code=3, **env).stdout)
    assert [r["device"] for r in rows] == ["GPU-a", "GPU-dead"]
    assert len(rows[0]["rows"]) == 7 and rows[0]["others"][0]["device"] == "GPU-b"
    assert "device GPU-a, GPU-b (/db)" in ctl(None, "list", "--all", code=3, **env).stdout
    fakes[1].answers["status"] = status_of("GPU-b", "/other")
    rows = json.loads(ctl(None, "list", "--all", "--json", code=3, **env).stdout)
    assert [r["device"] for r in rows if "rows" in r] == ["GPU-a", "GPU-b"]


def test_a_failure_of_one_daemon_names_the_daemon(host):
    fakes, env = host

    def refuse(params):
        raise Refusal("store", "the reason")

    fakes[0].answers["list"] = refuse
    fakes[1].answers["list"] = rows_of(EVENTS)
    out = ctl(None, "events", "--all", "--json", code=1, **env)
    rows = {r["device"]: r for r in json.loads(out.stdout)}
    assert rows["GPU-a"]["error"]["message"] == "the reason" and len(rows["GPU-b"]["rows"]) == 3
    assert "gemmctl: GPU-a: the reason" in out.stderr


def test_all_excludes_the_options_of_a_single_daemon(host):
    assert "leave out" in ctl(None, "list", "--all", "--device", "cpu", code=2, **host[1]).stderr


def test_a_host_without_daemons_is_said(folder):
    (folder / "gemmd").mkdir(mode=0o700)
    assert "no daemon" in ctl(None, "status", "--all", code=3, XDG_RUNTIME_DIR=str(folder), GEMMD_SYSTEM="0").stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_watch_goes_on_until_ctrl_c(fake, terminal):
    fake.answers["status"] = {**status_of("GPU-a", "/db"), "build": "b"}
    reader, writer = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen([GEMMCTL, "status", "--watch=1"], stdout=writer, env=environment(fake))
    os.close(writer)
    seen = b""
    while seen.count(b"build ") < 2:
        seen += os.read(reader, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == -signal.SIGINT
    os.close(reader)
    assert (seen.count(b"\033[H\033[2J") >= 2) == terminal and (b"\n\nbuild" in seen) != terminal


def test_follow_prints_new_events_until_the_daemon_ends(fake):
    table = EVENTS[:2]

    def listed(params):
        f = params["filter"]
        rows = [r for r in table if r["id"] > f.get("after", 0)]
        rows = rows[::-1][:f["limit"]] if f.get("sort") == "-id" else rows
        return {"rows": rows, "total": len(rows), "next": None}

    fake.answers["list"] = listed
    process = subprocess.Popen([GEMMCTL, "events", "--follow", "--top", "1"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=environment(fake))
    assert process.stdout.readline().endswith("text 2\n")
    table.append(EVENTS[2])
    assert process.stdout.readline().endswith("text 3\n")
    fake.stop()
    out, said = process.communicate(timeout=60)
    fake.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # the fixture stops the fake again
    fake.listener.bind(str(fake.path) + ".end")
    fake.listener.listen(1)
    assert process.returncode == 3 and out == "" and "gemmd has ended" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_ends_by_the_signal_that_stops_it(fake, number):
    fake.answers["list"] = rows_of(EVENTS[:1])
    process = subprocess.Popen([GEMMCTL, "events", "--follow"], stdout=subprocess.PIPE, env=environment(fake))
    process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number


def test_follow_ends_when_its_output_is_lost(fake):
    fake.answers["list"] = rows_of(EVENTS[:1])
    with open("/dev/full", "wb") as full:
        lost = subprocess.run([GEMMCTL, "events", "--follow"], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=environment(fake), timeout=30, check=False)
    assert (lost.returncode, lost.stderr) == (1, "gemmctl: cannot write the result: No space left on device\n")


# ---- stale keys -------------------------------------------------------------------------------

def stale(fake):
    """Rows of two stamps, of which only "src=new" is today's."""
    rows = [{**BEST[i], "class": CLASS, "stamp": f"src={s} target=portable", "source": source}
            for i, (s, source) in enumerate([("old", "tuned"), ("new", "tuned"), ("old", "manual"), ("old", "tuned")])]

    def why(params):
        row = next(r for r in rows if r["key"] == params["key"])
        assert params["target"] == "portable"
        fits = row["stamp"].startswith("src=new")
        return {"stamp": {"fits": fits, "difference": "" if fits else "kernel source was old and is new"}}

    fake.answers.update(status=status_of("GPU-a", "/db"), why=why, list=rows_of(rows))
    return rows


def test_stale_rows_are_listed_with_the_reason(fake):
    rows = stale(fake)
    assert [r["key"] for r in ctl_json(fake, "list", "--what", "stale")] == [rows[i]["key"] for i in (0, 2, 3)]
    assert len(fake.params_of("why")) == 2, "one for each stamp"
    assert [r["key"] for r in ctl_json(fake, "list", "--what", "stale", "--offset", 1, "--top", 1)] == [rows[2]["key"]]
    assert fake.params_of("list")[-1]["filter"]["class"] == CLASS
    assert "kernel source was old and is new" in ctl(fake, "list", "--what", "stale").stdout
    assert "own device class" in ctl(fake, "list", "--what", "stale", "--where", "class=~X", code=2).stderr


def test_stale_keys_are_tuned_again_and_pins_are_verified(fake):
    rows = stale(fake)
    fake.answers["tune"] = fake.answers["get"] = lambda params: ANSWER
    said = ctl(fake, "tune", "--known", "--stale", "--budget", 7).stderr
    assert "[3/3]" in said
    tuned, verified = fake.params_of("tune"), fake.params_of("get")
    assert len(tuned) == 2 and len(verified) == 1
    assert tuned[0]["bucket"] == "exact" and tuned[0]["budget"] == 7 and tuned[0]["problem"]["M"] == 16
    assert tuned[0]["problem"]["op"] == rows[0]["op"]
    ctl(fake, "tune", "--known")
    assert len(fake.params_of("tune")) == 5
    for row in rows:
        row["stamp"] = "src=new target=portable"
    assert "nothing to tune" in ctl(fake, "tune", "--known", "--stale").stderr


@pytest.mark.parametrize("words,said", [(["--stale"], "--known"), (["--known", "--m", "16"], "name no problem"),
                                        (["--known", "--restrict", "A=1"], "whole searches"),
                                        (["--known", "--atol", "1e-3"], "whole searches")])
def test_known_excludes_what_it_cannot_do(fake, words, said):
    assert said in ctl(fake, "tune", *words, code=2).stderr


# ---- evict --where ----------------------------------------------------------------------------

def test_many_keys_are_evicted_only_after_a_yes(fake):
    fake.answers.update(list=rows_of(BEST[:2]), evict={"removed": 3})
    shown = ctl(fake, "evict", "--where", "class=~H100", code=1)
    assert "--yes" in shown.stderr and "dX" in shown.stdout and not fake.params_of("evict")
    for answer, n in ((b"n\n", 0), (b"y\n", 2)):
        terminal, its = pty.openpty()
        process = subprocess.Popen([GEMMCTL, "evict", "--where", "class=c"], stdin=its, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment(fake))
        os.write(terminal, answer)
        out, said = process.communicate(timeout=60)
        assert b"[y/N]" in said and len(fake.params_of("evict")) == n and (process.returncode == 0) == (n > 0)
        os.close(terminal), os.close(its)
    assert ctl_json(fake, "evict", "--where", "class=c", "--yes") == {"keys": 2, "removed": 6}
    assert [p["key"] for p in fake.params_of("evict")[-2:]] == [b["key"] for b in BEST[:2]]


def test_keys_are_evicted_by_age(fake):
    now = int(time.time())
    rows = [{**BEST[0], "created_s": now - 3 * 86400}, {**BEST[1], "created_s": now - 60}]
    fake.answers.update(list=rows_of(rows), evict={"removed": 1})
    ctl(fake, "evict", "--older-than", "2d", "--yes")
    assert fake.params_of("evict") == [{"key": BEST[0]["key"]}]
    assert "no key matches" in ctl(fake, "evict", "--older-than", "30d", "--yes").stderr
    for wrong in ("5", "d", "-1d", "1w"):
        assert "--older-than takes" in ctl(fake, "evict", f"--older-than={wrong}", "--yes", code=2).stderr
    assert "use one or the other" in ctl(fake, "evict", "abcdef", "--older-than=1d", code=2).stderr


def test_a_denied_removal_ends_the_command_with_the_sums(fake):
    def evict(params):
        if params["key"] == BEST[1]["key"]:
            raise Refusal("denied", "is for root")
        return {"removed": 3}

    fake.answers.update(list=rows_of(BEST[:3]), evict=evict)
    out = ctl(fake, "evict", "--where", "class=c", "--yes", code=1)
    assert "1 key evicted, 3 rows" in out.stdout and "is for root" in out.stderr


# ---- models -----------------------------------------------------------------------------------

def test_models_lists_the_table():
    table = ROOT / "python" / "gemmd" / "models.csv"
    models = json.loads(ctl(None, "models", "--json", GEMMD_MODELS=str(table)).stdout)
    assert len(models) == len(table.read_text().split()) - 1
    assert {"model": "qwen3-30b-a3b", "experts": 128, "topk": 8, "hidden": 2048, "inter": 768} in models
    assert "qwen3-30b-a3b" in ctl(None, "models", GEMMD_MODELS=str(table)).stdout
    assert "GEMMD_MODELS" in ctl(None, "models", code=1, GEMMD_MODELS="/nonexistent").stderr
