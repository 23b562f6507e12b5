# SPDX-License-Identifier: Apache-2.0
"""Hosts of a test: a database with a played daemon (host.c) and a real gemmd-fleet."""
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

from server import ROOT

BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
FLEET = BUILD / "fleet" / "gemmd-fleet"
HOST = BUILD / "tests" / "fleet" / "host"
PATIENCE = float(os.environ.get("GEMMD_TEST_PATIENCE", "1")) * 30
CLASS = "CPU/x/sm1"
STAMP = "src=1 abi=1 target=cpu compiler=cc"


def until(what, condition, patience=PATIENCE):
    """Waits until the condition returns something true, and returns that value."""
    end = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def read(database, sql, *values):
    """The rows of a query of a host's database."""
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return db.execute(sql, values).fetchall()
    finally:
        db.close()


class PlayedHost:
    """A host's database, and a played daemon."""

    def __init__(self, name, stamp=STAMP, cls=CLASS, database=None):
        self.name = name
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-fleet-"))
        self.database = database or self.home / "gemmd.db"
        self.fleet = None
        self.log = self.home / "log"
        self.play(stamp, cls)

    def play(self, stamp=STAMP, cls=CLASS):
        self.daemon = subprocess.Popen([HOST, self.database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.do("join", cls, stamp) == "done"

    def do(self, *words):
        self.daemon.stdin.write(" ".join(map(str, words)) + "\n")
        self.daemon.stdin.flush()
        return self.daemon.stdout.readline().strip()

    def link(self, conninfo, *options, env=None):
        """Starts gemmd-fleet."""
        with open(self.log, "ab") as log:
            self.fleet = subprocess.Popen([FLEET, "--database", self.database, "--name", self.name, "--conninfo", conninfo,
                                           "--idle-ms", "300", "--pause-ms", "600", *map(str, options)], stderr=log,
                                          env={**os.environ, **(env or {})})
        return self

    def said(self):
        return self.log.read_text()

    def rows(self, sql, *values):
        return read(self.database, sql, *values)

    def status(self):
        """(state, text, counters), as gemmd-fleet wrote them."""
        found = self.rows("SELECT state, text, counters FROM fleet")
        return (found[0][0], found[0][1], json.loads(found[0][2])) if found else ("", "", {})

    def is_attached(self):
        return bool(self.rows("SELECT 1 FROM lease WHERE key = 'fleet'"))

    def wait_attached(self):
        until(f"{self.name} is attached: {self.said()}", self.is_attached)
        return self

    def lease(self, m):
        found = self.rows("SELECT state, fence FROM lease WHERE key = ?", self.key(m))
        return found[0] if found else ("", 0)

    def key(self, m):
        return self.do("key", m)

    def best(self, m):
        """(source, time_us, trial) of the key's newest row; None."""
        found = self.rows("SELECT source, time_us, trial FROM best WHERE key = ? ORDER BY generation DESC LIMIT 1", self.key(m))
        return found[0] if found else None

    def numbers(self, m=None):
        """[(seq, state)] of the fleet's numbers."""
        if m is None:
            return self.rows("SELECT seq, state FROM fleet_row ORDER BY seq")
        return self.rows("SELECT seq, state FROM fleet_row WHERE key = ? ORDER BY seq", self.key(m))

    def stop_fleet(self, number=signal.SIGTERM):
        if self.fleet:
            self.fleet.send_signal(number)
            status = self.fleet.wait(PATIENCE)
            self.fleet = None
            return status
        return None

    def close(self):
        if self.fleet:
            self.fleet.kill()
            self.fleet.wait()
        self.daemon.kill()
        self.daemon.wait()
        self.daemon.stdin.close()
        self.daemon.stdout.close()
        shutil.rmtree(self.home, ignore_errors=True)
