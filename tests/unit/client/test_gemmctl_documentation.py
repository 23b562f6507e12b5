# SPDX-License-Identifier: Apache-2.0
"""gemmctl: its manual, help and completions."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from fake_gemmd import ROOT, ctl


def commands():
    text = ctl(None, "help").stdout
    return re.findall(r"^  (\w+) +\w", text, re.M)


def options_of(command):
    text = ctl(None, command, "--help").stdout
    return set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text)) - {"help", "usage"}


def test_manual_and_completions_know_every_command_and_option():
    known = commands()
    assert len(known) == 37 and "get" in known and "help" in known
    manual = (ROOT / "docs" / "man" / "gemmctl.1.scd").read_text()
    documented = re.findall(r"^\*(\w+)\*", manual.split("# COMMANDS")[1].split("\n# ")[0], re.M)
    assert documented == known
    options = set().union(*(options_of(c) for c in known if c != "help"))
    assert len(options) > 40
    for option in options:
        assert f"--{option}" in manual, option
    for shell in ("gemmctl.bash", "_gemmctl", "gemmctl.fish"):
        text = (ROOT / "completions" / shell).read_text()
        for word in known:
            assert re.search(rf"\b{word}\b", text), (shell, word)
        for option in options:
            form = rf"-l {option}\b" if shell.endswith("fish") else rf"--{option}\b"
            assert re.search(form, text), (shell, option)


def test_the_daemons_manual_knows_every_option():
    gemmd = pathlib.Path(os.environ["GEMMD"])
    text = subprocess.run([gemmd, "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--([a-z][a-z-]*)", text)) - {"help", "usage"}
    manual = (ROOT / "docs" / "man" / "gemmd.8.scd").read_text()
    documented = set(re.findall(r"\*--([a-z][a-z-]*)\*", manual))
    assert options == documented


def test_help_of_each_command():
    for command in commands():
        if command != "help":
            text = ctl(None, command, "--help").stdout
            assert text.startswith(f"Usage: gemmctl {command}")
            assert text == ctl(None, "help", command).stdout


@pytest.mark.parametrize("command", ["get", "tune"])
def test_each_option_is_below_its_heading(command):
    parts = re.split(r"^ ([A-Z][^\n]*):$", ctl(None, command, "--help").stdout, flags=re.M)
    options = {heading: set(re.findall(r"^ +(?:-\w, )?--([a-z]+)", text, re.M))
               for heading, text in zip(parts[1::2], parts[2::2])}
    assert options["Which columns"] == {"columns", "wide"}
    assert options["Which configs"] == {"restrict", "space", "target"}


def test_bash_completion():
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    script = f"""source {ROOT}/completions/gemmctl.bash
complete_line() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _gemmctl
    echo "${{COMPREPLY[@]}}"; }}
complete_line gemmctl qu
complete_line gemmctl get --wait n
complete_line gemmctl list --wh
complete_line gemmctl help tri
complete_line gemmctl export --format ""
complete_line gemmctl import --format ""
"""
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["quarantine", "now", "--what --where", "trials",
                                "gemmd unsloth aiter portfolio", "gemmd unsloth aiter"]


@pytest.mark.parametrize("shell", ["_gemmctl", "gemmctl.fish"])
def test_a_portfolio_is_completed_of_export_only(shell):
    """The test only reads these completions; the test above runs bash's completions."""
    command = ""
    for line in (ROOT / "completions" / shell).read_text().splitlines():
        command = " ".join(re.findall(r"\b(?:export|import)\b", line)) or command
        if "gemmd unsloth aiter portfolio" in line:
            assert command == "export", line
