# SPDX-License-Identifier: Apache-2.0
"""Results that travel: restore, bundles, lock files."""
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess

import pytest

from conftest import GEMMD


def problem(n):
    return {"op": "custom:travel", "n": n}


def restore(d, *args, **more):
    return d.ctl("restore", *args, "--database", d.database, env={"GEMMD_DAEMON": str(GEMMD)}, **more)


def beside(database):
    """Names of the files beside a database, without the database's name."""
    return sorted(p.name.removeprefix(database.name) for p in database.parent.glob(database.name + "?*"))


# ---- restore -----------------------------------------------------------------------------------


def test_restore_puts_a_backup_in_place_and_keeps_the_replaced_file(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    with d.connect() as c:
        c.call("put", problem=problem(1), config={"a": 1}, time_us=1)
        c.call("backup", path=str(copy))
        c.call("put", problem=problem(1), config={"a": 2}, time_us=1)
        # the rows of an unfinished log belong to the replaced file, not to the new one
        d.kill()
    before = d.database.stat()
    done = json.loads(restore(d, copy, "--json").stdout)
    assert done["database"] == str(d.database)
    kept = done["replaced"].removeprefix(str(d.database))
    assert kept.startswith(".replaced-") and {kept, kept + "-wal", ".lock"} <= set(beside(d.database))
    assert d.database.stat().st_mode == before.st_mode and d.database.stat().st_uid == before.st_uid
    d.start()
    with d.connect() as c:
        assert c.call("get", problem=problem(1))["config"] == {"a": 1}
    d.stop()
    restore(d, done["replaced"])
    d.start()
    with d.connect() as c:
        assert c.call("get", problem=problem(1))["config"] == {"a": 2}


def test_restore_refuses_while_a_program_has_the_database_open(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    d.call("backup", path=str(copy))
    before = d.database.stat().st_ino
    refused = restore(d, copy, check=False)
    assert refused.returncode == 75 and f"in use by pid {d.process.pid} (gemmd)" in refused.stderr
    d.stop()
    with contextlib.closing(sqlite3.connect(d.database)) as reader:
        reader.execute("SELECT count(*) FROM best").fetchall()
        refused = restore(d, copy, check=False)
        assert refused.returncode == 75 and f"in use by pid {os.getpid()} (" in refused.stderr
    assert d.database.stat().st_ino == before and not [n for n in beside(d.database) if "repl" in n]


def test_restore_refuses_files_that_are_no_copy_of_a_database(daemon, folder):
    d, copy, other = daemon(), folder / "copy.db", folder / "other.db"
    with d.connect() as c:
        for n in range(200):
            c.send("put", problem=problem(n), config={"a": n}, time_us=1)
        c.wait(c.next_id)
    d.call("backup", path=str(copy))
    d.stop()
    before = d.database.read_bytes()

    def says(path, text):
        refused = restore(d, path, check=False)
        assert refused.returncode == 1 and text in refused.stderr, refused.stderr
        assert d.database.read_bytes() == before and not [n for n in beside(d.database) if "repl" in n]

    says(folder / "none.db", "No such file")
    says(d.database, "is the database itself")
    other.write_text("no database " * 100)
    says(other, "not a database")
    other.write_bytes(b"")
    says(other, "has no tables")
    damaged = bytearray(copy.read_bytes())
    damaged[8192:8192 + 2048] = bytes(2048)
    other.write_bytes(damaged)
    says(other, "damaged")
    other.unlink()
    with sqlite3.connect(other) as newer:
        newer.execute("PRAGMA application_id = 0x67656d6d")
        newer.execute("PRAGMA user_version = 99")
        newer.execute("CREATE TABLE t(x)")
    says(other, "written by a newer gemmd")


def test_restore_makes_a_missing_database(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    d.call("put", problem=problem(1), config={"a": 1}, time_us=1)
    d.call("backup", path=str(copy))
    d.stop()
    for part in ("", "-wal", "-shm"):
        d.database.with_name(d.database.name + part).unlink()
    assert json.loads(restore(d, copy, "--json").stdout)["replaced"] is None
    assert d.database.stat().st_mode & 0o777 == 0o600
    d.start()
    assert d.call("get", problem=problem(1))["config"] == {"a": 1}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_only_the_owner_and_root_restore_and_root_keeps_the_owner(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    d.call("put", problem=problem(1), config={"a": 1}, time_us=1)
    d.call("backup", path=str(copy))
    d.stop()
    theirs = folder / "theirs"
    theirs.mkdir(mode=0o700)
    shutil.chown(theirs, "nobody")
    folder.chmod(0o755)
    copy.chmod(0o644)
    d.database = theirs / "cache.db"
    restore(d, copy)
    assert {p.stat().st_uid for p in theirs.iterdir()} == {theirs.stat().st_uid}
    d.database = folder / "cache.db"
    refused = subprocess.run([GEMMD, "--restore", copy, "--database", d.database], capture_output=True, text=True,
                             user="nobody", group="nogroup", extra_groups=[])
    assert refused.returncode == 1 and "only the owner of its folder" in refused.stderr, refused.stderr
