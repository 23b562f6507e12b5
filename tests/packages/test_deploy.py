# SPDX-License-Identifier: Apache-2.0
"""Samples in deploy/: the Slurm scripts with programs that work, fail, hang or are missing; the container's
start with a real gemmd; the DaemonSet; the settings."""
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
DEPLOY = ROOT / "deploy"
SMI = """echo 'GPU 0: NVIDIA H200 (UUID: GPU-aa)'
echo 'GPU 1: NVIDIA H200 (UUID: GPU-bb)'
echo '  MIG 1g.18gb     Device  0: (UUID: MIG-cc)'
echo '  MIG 1g.18gb     Device  1: (UUID: MIG-dd)'
echo 'GPU 2: NVIDIA H200 (UUID: GPU-ee)'"""


class Node:
    """A node with two sockets, and with programs that say how they were called."""

    def __init__(self, path):
        self.path, self.called = path, path / "called"
        (path / "bin").mkdir()
        (path / "run").mkdir()
        self.called.write_text("")
        # Only these are on PATH, so that a program is missing unless the test gives it.
        for name in ("sh", "timeout", "tail", "sed", "awk", "grep", "basename", "sleep", "tr"):
            (path / "bin" / name).symlink_to(shutil.which(name))
        for name in ("logger", "systemctl"):
            self.program(name, "")
        for name in ("GPU-aa", "GPU-ee"):
            # A socket's path is at most 107 bytes, and pytest's folders are long.
            subprocess.run([sys.executable, "-c", "import socket, sys; "
                            "socket.socket(socket.AF_UNIX).bind(sys.argv[1])", f"{name}.sock"],
                           cwd=path / "run", check=True)

    def program(self, name, body):
        program = self.path / "bin" / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>{self.called}\n{body}\n')
        program.chmod(0o755)

    def run(self, script, **env):
        done = subprocess.run(["/bin/sh", DEPLOY / "slurm" / script], capture_output=True, text=True, timeout=60,
                              env={"PATH": str(self.path / "bin"), "GEMMD_RUN": str(self.path / "run"), **env})
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout, self.called.read_text().splitlines()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_the_prolog_starts_a_socket_for_each_gpu_and_instance(node):
    node.program("nvidia-smi", SMI)
    said, called = node.run("prolog")
    assert said == ""
    assert [c for c in called if c.startswith("systemctl")] == [
        f"systemctl start gemmd@{uuid}.socket" for uuid in ("GPU-aa", "MIG-cc", "MIG-dd", "GPU-ee")]


def test_the_prolog_tells_the_log_which_socket_does_not_start(node):
    node.program("nvidia-smi", SMI)
    node.program("systemctl", "exit 1")
    assert sum("logger" in c and "does not start" in c for c in node.run("prolog")[1]) == 4


class Daemon:
    """A gemmd with the socket of GPU-aa."""

    def __init__(self, run, *options):
        self.socket = run / "GPU-aa.sock"
        self.process = subprocess.Popen([BUILD / "daemon/gemmd", "--device", "cpu", "--socket", self.socket, "--database",
                                         run / "d.db", "--cache-dir", run / "cache", *options], stderr=subprocess.DEVNULL,
                                        env={**os.environ, "GEMMD_SYSTEM": "0"})
        until = time.monotonic() + 60
        while self.status().returncode:
            assert time.monotonic() < until and self.process.poll() is None
            time.sleep(0.02)

    def status(self):
        return subprocess.run([BUILD / "client/gemmctl", "status", "--socket", self.socket], capture_output=True, text=True,
                              env={**os.environ, "GEMMD_SYSTEM": "0"}, check=False)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


@pytest.fixture
def run():
    with tempfile.TemporaryDirectory(prefix="gemmd-") as name:
        yield pathlib.Path(name)


@pytest.fixture(scope="module")
def status():
    """The status that a real gemmd shows."""
    with tempfile.TemporaryDirectory(prefix="gemmd-") as name:
        daemon = Daemon(pathlib.Path(name))
        text = daemon.status().stdout
        daemon.stop()
    return text


@pytest.fixture
def healthy(status):
    return f"printf '%s' {shlex.quote(status)}"


@pytest.fixture
def sick(status):
    changes = {"tuning": "off: device", "disk full": "yes", "unsaved": "3", "unsaved quarantine": "2"}
    for name, value in changes.items():
        status, n = re.subn(rf"^({name} +)(on|no|0)$", rf"\g<1>{value}", status, flags=re.M)
        assert n == 1, name
    return f"printf '%s' {shlex.quote(status)}"


def test_the_epilog_restarts_a_daemon_without_an_answer(node, healthy):
    node.program("gemmctl", f"case $* in *GPU-aa*) echo 'no daemon answers' >&2; exit 3 ;; esac; {healthy}")
    _, called = node.run("epilog")
    assert [c for c in called if c.startswith("systemctl")] == ["systemctl restart gemmd@GPU-aa.service"]
    assert [c for c in called if c.startswith("logger")] == [
        "logger -t gemmd-epilog -p daemon.warning -- gemmd@GPU-aa does not answer, and is restarted: no daemon answers"]


def test_the_epilog_logs_what_the_next_job_would_suffer_from(node, sick):
    node.program("gemmctl", sick)
    _, called = node.run("epilog")
    assert [c.split("gemmd@GPU-ee: ")[1] for c in called if "gemmd@GPU-ee: " in c] == [
        "tuning         off: device", "unsaved        3", "unsaved quarantine 2", "disk full      yes"]
    assert not any(c.startswith("systemctl") for c in called)


def test_a_busy_daemon_is_left_alone(node):
    node.program("gemmctl", "exit 75")
    assert not any(c.startswith(("systemctl", "logger")) for c in node.run("epilog")[1])
    assert node.run("task-prolog")[0] == ""


def test_a_daemon_that_refuses_connections_for_seconds_is_left_alone(node, run):
    """The real gemmctl at a real gemmd whose connections are all taken."""
    node.program("gemmctl", f'exec {BUILD}/client/gemmctl "$@"')
    node.program("nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-aa)'")
    env = {"GEMMD_RUN": str(run), "GEMMD_SYSTEM": "0", "PATH": str(node.path / "bin")}
    daemon = Daemon(run, "--max-connections", "8")
    held = []
    while True:  # a connection of before may end late, and leave room for one more
        for _ in range(8):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(str(daemon.socket))
        if (code := daemon.status().returncode):
            break
    assert code == 75
    with ThreadPoolExecutor() as pool:
        scripts = [pool.submit(node.run, script, **env) for script in ("task-prolog", "epilog")]
        check = pool.submit(subprocess.run, ["/bin/sh", DEPLOY / "container" / "start", "check"], env=env, check=False)
    assert [s.result()[0] for s in scripts] == ["", ""] and check.result().returncode == 0
    assert not any(c.startswith(("systemctl", "logger")) for c in node.called.read_text().splitlines())
    daemon.stop()
    for s in held:
        s.close()


def test_the_task_prolog_keeps_a_task_from_waiting(node, healthy):
    node.program("gemmctl", "echo 'no daemon\nanswers' >&2; exit 3")
    said, _ = node.run("task-prolog")
    lines = said.splitlines()
    assert sorted(lines[:2]) + lines[2:] == [
        *(f"print gemmd: {gpu} does not answer; this task uses default kernels where it must. no daemon answers"
          for gpu in ("GPU-aa", "GPU-ee")),
        "export GEMMD_WAIT=cached", "export GEMMD_DEADLINE_MS=2000"]
    said, _ = node.run("task-prolog", GEMMD_WAIT="now", GEMMD_DEADLINE_MS="10")
    assert "export" not in said
    node.program("gemmctl", healthy)
    assert node.run("task-prolog")[0] == ""


@pytest.mark.parametrize("script, program", [("prolog", "nvidia-smi"), ("prolog", "systemctl"), ("epilog", "gemmctl"),
                                             ("task-prolog", "gemmctl")])
def test_a_program_that_is_missing_or_fails_fails_no_node(node, healthy, script, program):
    node.program("nvidia-smi", SMI)
    node.program("gemmctl", healthy)
    (node.path / "bin" / program).unlink()
    node.run(script)
    node.program(program, "exit 1")
    node.run(script)
    for sock in (node.path / "run").iterdir():
        sock.unlink()
    node.run(script)


@pytest.mark.parametrize("script, program", [("prolog", "nvidia-smi"), ("epilog", "gemmctl")])
@pytest.mark.parametrize("limit", ["0.2", "no number"])
def test_a_program_that_hangs_fails_no_node(node, healthy, script, program, limit):
    node.program("nvidia-smi", SMI)
    node.program("gemmctl", healthy)
    node.program(program, f"echo $$ >>{node.path}/pid; trap '' TERM; for i in {' '.join('0' * 50)}; do sleep 0.1; done")
    node.run(script, GEMMD_PROLOG_S=limit, GEMMD_EPILOG_S=limit)
    assert (node.path / "pid").exists() == (limit == "0.2")
    if script == "prolog" and limit == "0.2":  # the epilog's own limit of a question is longer than this test
        with pytest.raises(ProcessLookupError):
            while True:  # meson ends a test that waits here for ever
                os.kill(int((node.path / "pid").read_text()), 0)
                time.sleep(0.02)


def test_a_daemon_that_hangs_keeps_no_task(node, run):
    """The real gemmctl at a socket that nobody reads."""
    node.program("gemmctl", f'exec {BUILD}/client/gemmctl "$@"')
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{run}/GPU-aa.sock")
        silent.listen()
        said, _ = node.run("task-prolog", GEMMD_RUN=str(run), GEMMD_TASK_PROLOG_S="0.2", GEMMD_SYSTEM="0")
        assert said.splitlines()[0].startswith("print gemmd: GPU-aa does not answer;")
        assert said.splitlines()[1:] == ["export GEMMD_WAIT=cached", "export GEMMD_DEADLINE_MS=2000"]
        assert node.run("task-prolog", GEMMD_RUN=str(run), GEMMD_TASK_PROLOG_S="no number")[0] == ""


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    scripts = [*(DEPLOY / "slurm").iterdir(), DEPLOY / "container" / "start", ROOT / "tests/packages/run",
               ROOT / "tests/packages/inside", ROOT / "tests/packages/container", *(ROOT / "debian").glob("*.p*")]
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_daemonset_takes_no_gpu_and_shares_the_folder_of_the_sockets():
    yaml = pytest.importorskip("yaml")
    pod = yaml.safe_load((DEPLOY / "container" / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert "nvidia.com/gpu" not in str(container["resources"])
    paths = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert paths == {"run": "/run/gemmd", "state": "/var/lib/gemmd", "cache": "/var/cache/gemmd"}
    assert {name: mounts[name] for name in paths} == paths and mounts["tmp"] == "/tmp"
    made = (DEPLOY / "container" / "Containerfile").read_text()
    assert f"useradd -u {container['securityContext']['runAsUser']} " in made
    assert f"groupadd -g {container['securityContext']['runAsGroup']} " in made
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    for step in (*pod["initContainers"], container):
        assert step["image"].endswith(":" + version)
    assert f"gemmd ({version})" in (ROOT / "debian" / "changelog").read_text()


def settings(*options):
    shown = subprocess.run([BUILD / "daemon/gemmd", "--print-config", "--device", "cpu", *options],
                           capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^([\w-]+) = (.*?) *; (?:.*)$", shown, re.M))


def test_the_sample_shows_the_default_of_each_setting(tmp_path):
    """Not the settings of a single gemmd of the host: device, socket, runner, offline; and group."""
    sample = (DEPLOY / "gemmd.conf").read_text()
    shown = dict(re.findall(r"^#([\w-]+) = ?(.*)$", sample, re.M))
    right = settings("--database", "/var/lib/gemmd/gemmd.db", "--cache-dir", "/var/cache/gemmd")
    for name in ("device", "socket", "runner", "offline", "group"):
        del right[name]
    assert shown == right
    read = tmp_path / "gemmd.conf"
    read.write_text(sample.replace("#min-gain = 1", "min-gain = 7"))
    tmp_path.chmod(0o700)
    assert settings("--config", read)["min-gain"] == "7"


def test_the_container_starts_a_gemmd_again_and_ends_with_it(tmp_path):
    tmp_path.chmod(0o700)
    run = tmp_path / "r"
    run.mkdir(mode=0o700)
    env = {**os.environ, "PATH": f"{BUILD}/daemon:{BUILD}/client:{os.environ['PATH']}", "GEMMD_DEVICES": "cpu",
           "GEMMD_RUN": str(run), "GEMMD_PAUSE_S": "0.1", "GEMMD_SYSTEM": "0",
           **{f"XDG_{n}": str(tmp_path) for n in ("RUNTIME_DIR", "STATE_HOME", "CACHE_HOME")}}
    start = subprocess.Popen([DEPLOY / "container" / "start"], env=env, stderr=subprocess.PIPE, text=True)

    def is_well():
        check = [DEPLOY / "container" / "start", "check"]
        return subprocess.run(check, env=env, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def pid():
        until = time.monotonic() + 60
        while not is_well():
            assert time.monotonic() < until and start.poll() is None
            time.sleep(0.02)
        shown = subprocess.run(["gemmctl", "status", "--json", "--socket", run / "cpu.sock"], env=env, text=True,
                               capture_output=True, check=True).stdout
        return int(re.search(r'"pid": (\d+)', shown)[1])
    first = pid()
    os.kill(first, signal.SIGKILL)
    second = pid()
    assert second != first
    start.terminate()
    assert start.wait(60) == 0
    assert "ended with status 137" in start.stderr.read()
    assert not is_well()
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_a_container_without_a_gpu_says_so(node):
    done = subprocess.run(["/bin/sh", DEPLOY / "container" / "start"], capture_output=True, text=True, check=False,
                          env={"PATH": str(node.path / "bin")})
    assert done.returncode == 1 and "lists no GPU" in done.stderr
