# SPDX-License-Identifier: Apache-2.0
"""The methods that only gemmd's owner may call (`shutdown`, `evict`, `pin`, ...), lists, and the daemon's options."""
import os
import pathlib
import subprocess
import sys
import time

import msgpack
import pytest

from conftest import GEMMCTL, GEMMD, RUNNER, SYNTHETIC, Client, RpcError, eventually, gemm
from test_daemons import host  # noqa: F401: the fixture

CLIENT = """
import sys
sys.path.insert(0, {folder!r})
sys.dont_write_bytecode = True
from rpc import Client, RpcError, gemm
with Client({socket!r}) as c:
    print(c.call("status")["tuning"])
    print(c.call("get", problem=gemm(), wait="cached")["tier"])
    for method, params in [("shutdown", {{}}), ("evict", {{"problem": gemm()}}),
                           ("pin", {{"problem": gemm(), "config": "a=1"}}), ("import", {{"rows": []}}),
                           ("backup", {{"path": "/tmp/x"}}), ("cancel", {{"key": "0" * 32}}),
                           ("unquarantine", {{"variant": "0" * 32}})]:
        try:
            c.call(method, **params)
            print(method, "was allowed")
        except RpcError as e:
            print(e.name)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_who_is_not_the_owner_may_ask_but_not_decide(daemon, folder):
    d = daemon(options=["--group", "nogroup"])
    folder.chmod(0o755)
    script = CLIENT.format(folder=str(pathlib.Path(__file__).parent), socket=str(d.socket))

    def run_as(group):
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              user="nobody", group=group, extra_groups=[])

    result = run_as("nogroup")
    assert result.stdout.split() == ["on", "default"] + ["denied"] * 7, result
    assert "PermissionError" in run_as("daemon").stderr, "the group decides who connects"


def test_an_unknown_group_is_refused(folder):
    result = subprocess.run([GEMMD, "--device", SYNTHETIC, "--runner", RUNNER, "--socket",
                             folder / "s", "--database", folder / "d.db", "--cache-dir", folder,
                             "--group", "no-such-group"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2 and "no-such-group" in result.stderr
    assert not (folder / "s").exists()


def test_more_connections_than_allowed_are_answered_busy(daemon):
    d = daemon(options=["--max-connections", "3"])
    held = [d.connect()]
    # this connection stays open: a connection for this call alone might still be counted after its close
    eventually(lambda: held[0].call("status")["connections"] == 1)
    held += [d.connect() for _ in range(2)]
    for c in held:
        c.call("status")
    refused = d.connect()
    message = refused.read()
    assert message[2]["name"] == "busy" and "3" in message[2]["message"]
    with pytest.raises(EOFError):
        refused.read()
    held.pop().close()
    eventually(lambda: len(held[0].call("status")) and held[0].call("status")["connections"] == 2)
    assert d.status()["pid"]


def test_too_many_waiting_requests_of_one_client_are_busy(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    with d.connect() as c:
        ids = [c.send("get", problem=gemm(n=64 * (i + 1)), budget=200) for i in range(300)]
        with pytest.raises(RpcError) as e:
            c.wait(ids[-1])
        assert e.value.name == "busy"
    eventually(lambda: d.status()["jobs"]["running"] == 0)
    assert d.status()["jobs"]["queued"] == 0, "they went with their client"


def test_a_message_must_be_complete_in_time(daemon):
    d = daemon()
    with d.connect() as c:
        c.socket.sendall(msgpack.packb([0, 9, "get", {"problem": gemm()}])[:-3])
        began = time.monotonic()
        message = c.read()
        assert message[1] == 9 and message[2]["name"] == "malformed"
        assert 9 < time.monotonic() - began < 15
    assert d.status()["pid"]


def test_list_pages(daemon):
    d = daemon()
    with d.connect() as c:
        for i in range(600):
            c.send("put", problem={"op": "custom:pages", "i": i}, config={"x": i}, time_us=1)
        c.wait(c.next_id)
        page = c.call("list", what="best")
        assert len(page["rows"]) <= 256 and page["total"] == 600 and page["next"] == len(page["rows"])
        assert {r["config"]["x"] for r in c.list("best")} == set(range(600))
        few = c.call("list", what="best", filter={"limit": 2, "sort": "-generation"})
        assert [r["config"]["x"] for r in few["rows"]] == [599, 598]
        assert c.call("list", what="events", filter={"kind": "start"})["total"] == 1


def test_show(daemon):
    d = daemon()
    with d.connect() as c:
        answer = c.call("get", problem=gemm(), budget=6)
        shown = c.call("show", key=answer["key"][:8])
        assert shown["answer"] == answer
        assert shown["best"]["config"] == answer["config"]
        assert shown["problem"]["op"] == "grouped_gemm" and shown["problem"]["M"] >= 256
        assert shown["trials"] == c.call("list", what="trials", filter={"key": answer["key"]})["total"]
        assert shown["failed"] == 0
        assert c.call("show", problem=gemm())["best"]["key"] == answer["key"]
        with pytest.raises(RpcError) as e:
            c.call("show", problem=gemm(n=4096))
        assert e.value.name == "not_found"


def test_backup_is_a_database(daemon, folder):
    d = daemon()
    answer = d.call("get", problem=gemm(), budget=4)
    copy = folder / "copy.db"
    assert d.call("backup", path=str(copy))["path"] == str(copy)
    with pytest.raises(RpcError):
        d.call("backup", path=str(copy))
    with pytest.raises(RpcError) as e:
        d.call("backup", path="relative.db")
    assert e.value.name == "invalid"
    with pytest.raises(RpcError) as e:
        d.call("backup", path=str(folder / "nowhere" / "copy.db"))
    assert "No such file" in e.value.message and str(d.database) not in e.value.message
    d.stop()
    d.database = copy
    d.start()
    assert d.call("get", problem=gemm(), wait="cached") == answer


def test_a_put_does_not_push_out_what_was_measured(daemon):
    d = daemon()
    with d.connect() as c:
        tuned = c.call("get", problem=gemm(), budget=4)
        with pytest.raises(RpcError) as e:
            c.call("put", problem=gemm(), config=tuned["config"], time_us=0.001)
        assert e.value.name == "conflict" and "pin" in e.value.message
        assert c.call("get", problem=gemm()) == tuned
        with pytest.raises(RpcError) as e:
            c.call("put", problem=gemm(n=512), config={"BLOCK_SIZE_M": 7}, time_us=1)
        assert e.value.name in ("invalid", "conflict", "unknown_field")


@pytest.mark.parametrize("n", [1, 2])
def test_a_put_at_the_last_moment_does_not_push_out_what_was_measured(host, n):  # noqa: F811
    """The put comes when the runner has reported the winner, but its row is not yet in the database, or not yet known
    to the daemon of the put."""
    members = host(n)
    d = members[0]
    problems = [gemm(n=64 * i) for i in range(1, 11)]
    with d.connect() as c, members[-1].connect() as other:
        for p in problems:
            config = c.call("get", problem=p, wait="cached")["config"]
            asked = c.send("get", problem=p, budget=2, progress=True)
            while (message := c.read())[0] == 2:
                if message[2]["phase"] == "done":
                    other.send("put", problem=p, config=config, time_us=0.001)
            assert message[1] == asked and message[3]["source"] == "tuned"
        other.responses.clear()
        for _ in range(other.next_id):
            message = other.read()
            assert message[2] is None or message[2]["name"] == "conflict"
        assert [c.call("get", problem=p, wait="cached")["source"] for p in problems] == ["tuned"] * 10
    assert d.sql("SELECT DISTINCT source FROM current_best") == [("tuned",)]


def test_puts_do_not_pile_up(daemon):
    d = daemon()
    problem = {"op": "custom:same", "i": 1}
    with d.connect() as c:
        first = c.call("put", problem=problem, config={"x": 0}, time_us=1)
        for x in (0, 0, *range(1, 200)):
            c.send("put", problem=problem, config={"x": x}, time_us=1)
        again = c.wait(c.next_id - 199)
        assert again["generation"] == first["generation"] and again["saved"]
        assert c.wait(c.next_id)["config"] == {"x": 199}
        assert c.call("get", problem=problem)["config"] == {"x": 199}
        kept = c.list("history", key=first["key"])
    assert [r["config"]["x"] for r in kept] == list(range(136, 200))


def test_a_put_is_a_hint_that_is_tried(daemon):
    d = daemon()
    with d.connect() as c:
        default = c.call("get", problem=gemm(), wait="cached")["config"]
        params = c.call("space", problem=gemm())["params"]
        odd = next(config for p in params for v in p["values"] if v != default[p["name"]]
                   for config in [{**default, p["name"]: v}]
                   if not p["run_time"] and c.call("check", problem=gemm(), config=config)["valid"])
        hint = c.call("put", problem=gemm(), config=odd)
        assert hint["tier"] == "near" and hint["source"] == "imported"
        answer = c.call("get", problem=gemm(), budget=3)
        measured = [t["config"] for t in c.list("trials", key=answer["key"])]
        assert odd in measured


def test_import_says_what_it_skipped(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(), budget=4)
        row = c.list("best")[0]
        foreign = {**row, "class": "NVIDIA B200/sm_100a/sm148/smem232448/mem180/mig-/pl1000"}
        result = c.call("import", rows=[row, foreign, {"op": "nothing"}, 7])
        assert result["imported"] == 0 and [s["row"] for s in result["skipped"]] == [0, 1, 2, 3]
        assert all(s["message"] for s in result["skipped"])


def test_a_tighter_tolerance_verifies_again_and_does_not_search_again(daemon):
    d = daemon()
    with d.connect() as c:
        first = c.call("get", problem=gemm(), budget=12)
        tighter = c.call("get", problem=gemm(), budget=12, atol=5e-3, rtol=5e-3)
        assert tighter["config"] == first["config"] and tighter["tier"] == "exact"
        new = [t for t in c.list("trials", key=first["key"], sort="id") if "atol" in t["stamp"]]
        assert 1 <= len({str(t["config"]) for t in new}) <= 2, "the known best, and a reference"
        done = c.call("status")["jobs"]["done"]
        assert c.call("get", problem=gemm(), atol=5e-3, rtol=5e-3) == tighter
        assert c.call("get", problem=gemm()) == tighter
        assert c.call("status")["jobs"]["done"] == done


def test_answers_of_other_code_are_hints(daemon):
    d = daemon()
    answer = d.call("get", problem=gemm(), budget=4)
    rows = d.call("list", what="best")["rows"]
    d.stop()
    # the same database under another compiler: another stamp
    changed = d.folder / "other.jsonl"
    original = pathlib.Path(SYNTHETIC.split(":", 1)[1]).read_text()
    compiler = rows[0]["stamp"].split("compiler=", 1)[1].removeprefix("replay ")
    assert compiler in original
    changed.write_text(original.replace(compiler, compiler + "x"))
    synthetic = d.folder / "synthetic.jsonl"
    changed.rename(synthetic)
    d.device = f"replay:{synthetic}"
    d.start()
    with d.connect() as c:
        hint = c.call("get", problem=gemm(), wait="cached")
        assert hint["tier"] == "near" and hint["config"] == answer["config"], hint
        assert "other code" in hint["note"]
        again = c.call("get", problem=gemm(), budget=3)
        assert again["tier"] == "exact" and again["stamp"] != answer["stamp"]


def test_waiting_clients_go_before_background_work(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "3"})
    with d.connect() as c:
        for i in range(16):
            c.call("get", problem=gemm(n=64 * (i + 1)), wait="now", budget=8)
        c.call("get", problem=gemm(k=512), budget=4)
        assert c.call("status")["jobs"]["queued"] >= 4, "the background waits"
        eventually(lambda: c.call("status")["jobs"]["queued"] == 0, 60)


def test_progress_is_for_who_asked_and_not_too_often(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "2"})
    with d.connect() as c, d.connect() as quiet:
        other = quiet.send("get", problem=gemm(), budget=12)
        began = time.monotonic()
        c.call("get", problem=gemm(), budget=12, progress=True)
        took = time.monotonic() - began
        quiet.wait(other)
    assert quiet.notifications == []
    progress = [p for name, p in c.notifications if name == "progress"]
    assert progress and all(p["request"] == 1 for p in progress)
    assert len(progress) <= 12 * took + 10
    assert [p["done"] for p in progress] == sorted(p["done"] for p in progress)


def test_offline_serves_on_a_private_socket_and_tunes_nothing(daemon, folder):
    d = daemon()
    answer = d.call("get", problem=gemm(), budget=4)
    d.stop()
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "GEMMD_SYSTEM": "0", "GEMMD_SOCKET": ""}
    process = subprocess.Popen(
        [GEMMD, "--offline", "--device", SYNTHETIC, "--database", d.database, "--cache-dir",
         d.cache, "--runner", RUNNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=env)
    path = process.stdout.readline().strip()
    try:
        found = subprocess.run([GEMMCTL, "version"], env=env, capture_output=True, text=True)
        assert "gemmd not running" in found.stdout, "nobody finds it by chance"
        with Client(path) as c:
            assert c.call("get", problem=gemm()) == answer
            with pytest.raises(RpcError) as e:
                c.call("get", problem=gemm(n=512))
            assert e.value.name == "no_device" and "offline" in e.value.message
            assert "offline" in c.call("status")["tuning"]
            assert c.call("evict", key=answer["key"])["removed"] > 0
    finally:
        process.terminate()
        assert process.wait(20) == 0
    assert not os.path.exists(path) and not os.path.exists(path + ".lock")


def test_it_leaves_when_idle_if_told_to(daemon):
    d = daemon(options=["--idle-exit-s", "1"])
    with d.connect() as c:
        time.sleep(2.5)
        assert c.call("status")["pid"], "not while somebody is connected"
    assert d.process.wait(15) == 0


def test_a_socket_from_systemd(folder, shared_cache):
    """With LISTEN_FDS the socket belongs to the service manager, and stays after the daemon's end."""
    import socket
    path = folder / "unit.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(16)
    command = ["sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "sh", GEMMD, "--device",
               SYNTHETIC, "--database", folder / "d.db", "--cache-dir", shared_cache, "--runner",
               RUNNER, "--socket", path]

    def inherit():
        os.dup2(listener.fileno(), 3)

    process = subprocess.Popen(list(map(str, command)), preexec_fn=inherit, close_fds=False,
                               stderr=subprocess.PIPE)
    with Client(path) as c:
        assert c.call("get", problem=gemm(), budget=4)["tier"] == "exact"
    process.terminate()
    assert process.wait(20) == 0, process.stderr.read()
    process.stderr.close()
    assert path.exists()


def test_print_config_shows_where_each_value_comes_from(folder):
    conf = folder / "gemmd.conf"
    conf.write_text("[gemmd]\nbucket = pow2\n")
    longest = "/" + "d" * 1022
    result = subprocess.run([GEMMD, "--config", conf, "--linger-ms", "7", "--database", longest, "--print-config"],
                            capture_output=True, text=True, check=True)
    lines = {line.split(" = ")[0]: line for line in result.stdout.splitlines() if " = " in line}
    assert lines["bucket"].split(";") [1].strip() == f"{conf}:2" and "pow2" in lines["bucket"]
    assert lines["linger-ms"].endswith("; command line")
    assert lines["group"].endswith("; default")
    conf.write_text(result.stdout)
    again = subprocess.run([GEMMD, "--config", conf, "--print-config"], capture_output=True,
                           text=True, check=True)
    assert f"database = {longest} ; {conf}:" in again.stdout
    assert [l.split(";")[0] for l in again.stdout.splitlines()] == \
           [l.split(";")[0] for l in result.stdout.splitlines()], "what it prints reads back"


def test_version():
    result = subprocess.run([GEMMD, "--version"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 0 and result.stdout.startswith("gemmd 0."), result


def test_usage_errors(folder):
    for option, word in (("--linger-ms=soon", "soon"), ("--max-connections=0", "from 1"),
                         ("--log-level=loud", "loud"), ("--bucket=log", "sqrt2"), ("--colour=red", "colour"),
                         (f"--config={folder}", "directory"), ("--device=tpu:0", "tpu:0")):
        result = subprocess.run([GEMMD, option], capture_output=True, text=True, timeout=30)
        assert result.returncode == 2 and word in result.stderr
