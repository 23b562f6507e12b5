# SPDX-License-Identifier: Apache-2.0
"""The servers under test, each started for a run in a temporary folder and pinned to a CPU."""
import os
import shutil
import signal
import socket
import subprocess
import time

START_S = 60


def pin(pid, cpu):
    if cpu is None:
        return
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(task), {cpu})
        except ProcessLookupError:
            pass


def in_front():
    """Runs in a child before exec: with real-time priority no other process interrupts the server."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def version_of(command):
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
        return said.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return ""


class Server:

    def __init__(self, name, folder, command, realtime=False):
        self.name, self.socket = name, folder / f"{name}.sock"
        self.socket.unlink(missing_ok=True)
        self.log = (folder / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=in_front if realtime else None)
        self._wait()

    @property
    def pid(self):
        return self.process.pid

    def _wait(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(str(self.socket))
                    return
                except (FileNotFoundError, ConnectionRefusedError):
                    time.sleep(0.01)
        self.stop()
        with open(self.log.name, errors="replace") as f:
            raise SystemExit(f"{self.name} did not start:\n{f.read()[-2000:]}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def timed(command, realtime=False, **options):
    """Runs a command. Returns its wall time and its processor time, in seconds, and what it printed."""
    began = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True,
                               preexec_fn=in_front if realtime else None, **options)
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if status:
        raise SystemExit(f"{command[0]} failed: {process.returncode}")
    return seconds, used.ru_utime + used.ru_stime, text


def gemmd_command(build, folder, device, database, name="gemmd"):
    return [build / "daemon" / "gemmd", "--device", device, "--socket", folder / f"{name}.sock",
            "--database", database, "--cache-dir", folder / "cache", "--max-connections", 20000,
            "--log-level", "warning"]


def memcached_command(folder):
    """A single worker thread, as in gemmd and Redis; None: not installed."""
    program = shutil.which("memcached")
    user = ["-u", "root"] if os.geteuid() == 0 else []
    return program and [program, "-s", folder / "memcached.sock", "-t", 1, "-m", 256, "-c", 2048,
                        *user]


def redis_command(folder):
    program = shutil.which("redis-server")
    return program and [program, "--port", 0, "--unixsocket", folder / "redis.sock", "--save", "",
                        "--appendonly", "no", "--dir", folder]


def versions():
    return {"memcached": version_of(["memcached", "-V"]),
            "redis": version_of(["redis-server", "--version"])}
