# SPDX-License-Identifier: Apache-2.0
"""Databases of earlier releases (tests/data/databases) open, are migrated, and keep all rows. Builds differ by id."""
import json
import lzma
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import BUILD, DATA, ROOT, SYNTHETIC, Daemon, RpcError

SCHEMA = 6


@pytest.fixture
def earlier(folder, shared_cache):
    """A daemon on a database of schema 3, and the rows and answers that its writer reported."""
    d = Daemon(folder, SYNTHETIC, cache=shared_cache)
    d.database.write_bytes(lzma.decompress((DATA / "databases" / "schema3.db.xz").read_bytes()))
    d.database.chmod(0o600)
    expected = json.loads(lzma.decompress((DATA / "databases" / "schema3.json.xz").read_bytes()))
    yield d.start(), expected
    assert d.stop() == 0, d.text()


def test_every_row_is_there(earlier):
    d, expected = earlier
    assert d.sql("PRAGMA user_version") == [(SCHEMA,)] and "was migrated from schema 3" in d.text()
    with d.connect() as c:
        for what in ("best", "history", "trials", "quarantine", "runs", "modules"):
            rows, before = c.list(what), expected[what]
            assert len(rows) == len(before) > 0
            # columns may have been added; none is removed or changed
            for row, old in zip(rows, before):
                assert {name: row[name] for name in old} == old, what


def test_what_answered_answers_as_before(earlier):
    d, expected = earlier
    with d.connect() as c:
        stamp = c.call("hello")["stamp"]
        for problem, before in expected["answers"]:
            answer = c.call("get", problem=problem, wait="cached")
            if before["stamp"] in ("", stamp) and before["tier"] == "exact":
                assert {name: answer[name] for name in before} == before
        evicted = expected["generation"] + 1  # the generation that the evict used; no later row gets it
        assert c.call("hello")["generation"] == evicted
        new = c.call("put", problem={"op": "custom:new", "n": 1}, config={"A": 1}, time_us=1)
        assert new["generation"] == evicted + 1


def test_every_generation_answers_as_before(earlier):
    d, expected = earlier
    customs = [(i, p) for i, (p, _) in enumerate(expected["answers"]) if p["op"].startswith("custom:")]
    for generation, then in expected["pinned"].items():
        with d.connect() as c:
            c.call("hello", generation=int(generation))
            for i, problem in customs:
                try:
                    a = c.call("get", problem=problem, wait="cached")
                    assert [a["tier"], a["config"], a["generation"]] == then[i], (generation, problem)
                except RpcError as e:
                    assert e.name == then[i], (generation, problem)


def test_stale_keys_are_tuned_again(earlier):
    d, _ = earlier
    stale = {row["key"]: row for row in d.ctl_json("list", "--what", "stale")}
    now = d.call("hello")["stamp"]
    assert stale and all(row["stamp"] != now and row["why"] for row in stale.values())
    assert "manual" in {row["source"] for row in stale.values()}
    d.ctl("tune", "--known", "--stale", "--budget", "3")
    assert d.ctl_json("list", "--what", "stale") == []
    with d.connect() as c:
        after = {row["key"]: row for row in c.list("best") if row["key"] in stale}
    assert {row["stamp"] for row in after.values()} == {now}
    assert all(row["generation"] > stale[key]["generation"] for key, row in after.items())


def test_every_kind_of_source_is_part_of_the_build_id(folder):
    """gemmd refuses a runner of another build, also when the builds differ only in embedded kernels."""
    inputs = subprocess.run(["ninja", "-C", BUILD, "-t", "inputs", "daemon/gemmd", "runner/gemmd-runner"], check=True,
                            capture_output=True, text=True).stdout.splitlines()
    paths = {pathlib.Path(os.path.normpath(BUILD / name)) for name in inputs}
    ours = sorted(p.relative_to(ROOT) for p in paths
                  if p.is_relative_to(ROOT) and not p.is_relative_to(BUILD) and p.name != "build-id")
    kinds = {(p.parts[0], "".join(p.suffixes)): p for p in ours + [pathlib.Path("proto/limits.h")]}
    assert ("kernels", ".c.in") in kinds and ("kernels", ".cu") in kinds and ("kernels", ".txt") in kinds
    copy = folder / "copy"
    for name in ("proto", "store", "kernels", "runner", "daemon", "scripts"):
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / "meson.build", copy)

    def build_id():
        subprocess.run([copy / "scripts" / "build-id", copy, "1", folder / "id.c"], check=True)
        return (folder / "id.c").read_text(), (folder / "id.c").stat().st_mtime_ns

    before = build_id()
    assert build_id() == before, "an unchanged tree leaves the file alone"
    for path in kinds.values():
        text = (copy / path).read_bytes()
        (copy / path).write_bytes(text + b"\n")
        assert build_id()[0] != before[0], path
        (copy / path).write_bytes(text)
    assert build_id()[0] == before[0]
