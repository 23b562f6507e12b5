# SPDX-License-Identifier: Apache-2.0
"""gemmctl --json: a failing command prints a single document; its `error` has the name and the message of the error."""
import json
import re
import subprocess

import pytest

from fake_gemmd import GEMMCTL, Refusal, environment

SIZE = ["--m", "16", "--n", "32", "--k", "64"]
CONFIG = ["--config", "A=1"]
# Arguments with which a command reaches the daemon; and commands without a daemon.
WORDS = {"get": SIZE, "tune": SIZE, "bench": SIZE + CONFIG, "pin": SIZE + CONFIG, "unpin": ["abcdef"],
         "cancel": ["abcdef"], "promote": ["abcdef"], "show": ["abcdef"], "why": SIZE, "verify": ["--exact", *SIZE],
         "evict": ["abcdef"], "space": SIZE, "check": SIZE + CONFIG, "import": ["EXPORT"],
         "bundle": ["create", "x.bundle", "--key", "none.pem"], "lock": SIZE, "backup": ["copy.db"], "restore": ["copy.db"], "precompile": SIZE, "report": ["--html", "x.html"], "landscape": [*SIZE, "--to", "x.jsonl"]}
ALONE = ["precompile", "landscape", "restore"]
TABLE = "models"  # reads a file
EVERY = "metrics"  # asks all daemons; a daemon that refuses is a sample (tests/integration/test_metrics.py)


def commands():
    shown = subprocess.run([GEMMCTL, "help"], capture_output=True, text=True, timeout=60, check=True).stdout
    return [c for c in re.findall(r"^  (\w+) ", shown, re.M) if c != "help"]


def fails(fake, *words, codes=(1,), **env):
    result = subprocess.run([GEMMCTL, *words, "--json"], capture_output=True, text=True, timeout=60,
                            env=environment(fake, **env))
    assert result.returncode in codes, (words, result.stdout, result.stderr)
    assert result.stderr.startswith("gemmctl"), (words, result.stderr)
    document = json.loads(result.stdout)  # a single document
    rows = document if isinstance(document, list) else [document]
    assert [set(r["error"]) for r in rows] == [{"name", "message"}], words
    return rows[0]["error"], result.stderr


def test_every_command_says_wrong_usage_as_an_error_object(folder):
    for command in commands():
        error, said = fails(None, command, "--nosuch", codes=(2,), HOME=str(folder))
        assert error == {"name": "usage", "message": "unrecognized option '--nosuch'"}, command


def test_every_command_says_what_the_daemon_refuses_as_an_error_object(fake, folder):
    def refuse(params):
        raise Refusal("conflict", "the reason")
    (folder / "export.json").write_text(json.dumps({"gemmd_export": 1, "rows": [{"op": "custom:x"}]}))
    for method in ("get", "tune", "pin", "unpin", "cancel", "promote", "list", "show", "why", "evict", "space", "check",
                   "import", "backup", "status", "shutdown", "unquarantine", "hello"):
        fake.answers[method] = refuse
    tried = 0
    for command in commands():
        if command in [*ALONE, TABLE, EVERY]:
            continue
        if command == "version":
            continue  # the test below has it: `version` calls no method but hello
        fake.answers["hello"] = {"version": 1, "build": "fake-build", "bucket_scheme": "sqrt2"}
        words = [str(folder / "export.json") if w == "EXPORT" else w for w in WORDS.get(command, [])]
        error, said = fails(fake, command, *words)
        assert error["name"] == "conflict" and "the reason" in error["message"], (command, error)
        assert error["message"] in said
        tried += 1
    assert tried > 20
    fake.answers["hello"] = refuse
    assert fails(fake, "version")[0]["name"] == "conflict"


def test_every_command_says_that_no_daemon_is_there_as_an_error_object(folder):
    (folder / "export.json").write_text(json.dumps({"gemmd_export": 1, "rows": []}))
    for command in commands():
        if command in [*ALONE, TABLE, EVERY, "version", "start"]:  # both work without arguments
            continue
        words = [str(folder / "export.json") if w == "EXPORT" else w for w in WORDS.get(command, [])]
        error, _ = fails(None, command, *words, "--socket", str(folder / "none.sock"), codes=(3,))
        assert error["name"] == "unreachable", command
    assert fails(None, "start", GEMMD_DAEMON="/nonexistent", HOME=str(folder), GEMMD_SOCKET=str(folder / "x.sock"),
                 codes=(1, 3))[0]["message"]


@pytest.mark.parametrize("command", ALONE)
def test_a_command_that_asks_no_daemon_says_its_failure_as_an_error_object(folder, command):
    variable = "GEMMD_DAEMON" if command == "restore" else "GEMMD_RUNNER"
    error, _ = fails(None, command, *WORDS[command], **{variable: "/nonexistent"})
    assert error == {"name": "failed", "message": f"{variable}=/nonexistent is not a program that can be run"}


def test_a_database_without_a_fleet_is_an_error_object(fake):
    fake.answers["list"] = {"rows": [], "total": 0, "next": None}
    assert "belongs to no fleet" in fails(fake, "fleet")[0]["message"]


def test_wrong_usage_without_a_command_is_an_error_object():
    assert fails(None, codes=(2,))[0]["name"] == "usage"
    assert "no command" in fails(None, "nosuch", codes=(2,))[0]["message"]
