# SPDX-License-Identifier: Apache-2.0
"""`export` of a single key on a full disk: fails only for an unsaved answer of that key."""
import json

import pytest

from conftest import eventually
from test_disk import limit_files

SAVED, UNSAVED = "custom:one n=1", "custom:one n=2"
MISSING = "1 answer is only in the daemon's memory and not in this export"


def put(d, n, value=1):
    return d.call("put", problem={"op": "custom:one", "n": n}, config={"A": value}, time_us=5)


@pytest.fixture
def full(daemon):
    """A saved and an unsaved answer."""
    d = daemon()
    assert put(d, 1)["saved"]
    limit_files(d, True)
    assert not put(d, 2)["saved"]
    yield d
    limit_files(d, False)
    eventually(lambda: d.status()["store"]["unsaved"] == 0)


def test_a_saved_answer_is_exported_whatever_others_are(full):
    key = full.ctl_json("show", SAVED)["key"]
    for which in (SAVED, key, key[:8]):
        result = full.ctl("export", which)
        assert len(json.loads(result.stdout)["rows"]) == 1 and result.stderr == ""
    everything = full.ctl("export", check=False)
    assert everything.returncode == 1 and MISSING in everything.stderr


def test_an_unsaved_answer_fails_by_itself(full):
    result = full.ctl("export", UNSAVED, check=False)
    assert result.returncode == 1 and "no row to export" in result.stderr and MISSING in result.stderr


def test_a_newer_answer_that_is_unsaved_fails_with_the_older_row_written(full):
    assert not put(full, 1, 2)["saved"]
    result = full.ctl("export", SAVED, check=False)
    assert result.returncode == 1 and MISSING in result.stderr
    assert json.loads(result.stdout)["rows"][0]["config"] == {"A": 1}


def test_files_of_others_count_the_same(daemon, folder):
    d = daemon()
    size = ["--m", 256, "--k", 256, "--budget", 4]
    d.ctl("get", *size, "--n", 256)
    limit_files(d, True)
    d.ctl("get", *size, "--n", 512)
    named = ["export", "--format", "unsloth", "--to", folder / "x.csv", "--m", 256, "--k", 256, "--n"]
    assert "memory" not in d.ctl(*named, 256).stderr
    other = d.ctl(*named, 512, check=False)
    assert other.returncode == 1 and MISSING in other.stderr
    limit_files(d, False)
    eventually(lambda: d.status()["store"]["unsaved"] == 0)
    assert "memory" not in d.ctl(*named, 512, check=False).stderr, "its trials are lost, and that is all"
