# SPDX-License-Identifier: Apache-2.0
"""A best measured on a disturbed device is marked, and measured again when the device is idle."""
import time

import pytest

from conftest import DATA, eventually, gemm
from test_daemons import Member

LOW = "confidence low: "
WORDS = "something disturbed the device"


@pytest.fixture
def landscape(folder):
    """A replayed device with the given noise of samples."""
    path = folder / "device.jsonl"

    def noisy(sigma):
        path.write_text((DATA / "synthetic.jsonl").read_text().replace('"noise": 0.01', f'"noise": {sigma}'))
        return f"replay:{path}"
    return noisy


def rows(d):
    with d.connect() as c:
        return c.list("history", sort="generation")


def test_a_disturbed_best_says_so_in_every_answer(daemon, landscape):
    d = daemon(landscape(0.6))
    answer = d.call("get", problem=gemm(), budget=12)
    assert answer["spread"] > 0.25 and answer["note"].startswith(LOW) and WORDS in answer["note"]
    assert d.call("get", problem=gemm(), wait="cached") == answer
    assert d.call("get_many", problems=[gemm()])["answers"] == [answer]
    assert rows(d)[0]["doubt"] == answer["note"]
    assert [r["confidence"] for r in d.ctl_json("list")] == ["low"]
    shown = d.ctl("list").stdout.splitlines()
    assert "CONFIDENCE" in shown[0] and "low" in shown[1].split()
    why = d.call("why", problem=gemm())
    assert (why["verdict"], why["confidence"], why["action"]) == ("tuned", "low", "tune")
    assert why["answer"] == answer and any(WORDS in doubt for doubt in why["doubts"])
    assert "gemmctl tune" in d.ctl("why", "--m", 256, "--n", 256, "--k", 256, "--experts", 4, "--topk", 2).stdout
    assert d.stop() == 0 and d.start().call("get", problem=gemm())["note"] == answer["note"]


def test_a_disturbed_best_is_measured_again_when_the_device_is_quiet(daemon, landscape):
    d = daemon(landscape(0.6), options=["--remeasure-s", "1", "--linger-ms", "100"])
    before = d.call("get", problem=gemm())
    assert before["note"].startswith(LOW)
    landscape(0.01)
    eventually(lambda: d.call("get", problem=gemm(), wait="cached")["generation"] > before["generation"], 30)
    after = d.call("get", problem=gemm(), wait="cached")
    assert not after["note"].startswith(LOW) and after["tier"] == "exact" and after["spread"] < 0.05
    assert d.call("why", problem=gemm())["action"] == "none"
    first, second = rows(d)
    assert (second["atol"], second["problem"]) == (first["atol"], first["problem"])
    assert second["doubt"] == ""


def test_a_device_that_stays_disturbed_is_left_alone_after_some_tries(daemon, landscape):
    d = daemon(landscape(0.6), options=["--remeasure-s", "1", "--log-level", "info"])
    d.call("get", problem=gemm(), budget=8)
    quiet = d.call("get", problem=gemm(n=512), budget=8)
    eventually(lambda: d.status()["jobs"]["done"] == 2 + 2 * 3, 60)
    time.sleep(2.5)  # long enough for a fourth try to begin, if gemmd made one
    assert d.status()["jobs"]["done"] == 2 + 2 * 3
    assert all(r["doubt"].startswith(LOW) for r in rows(d))
    assert d.text().count("is measured again") == 6
    assert d.call("get", problem=gemm(n=512), wait="cached")["key"] == quiet["key"]


def test_daemons_of_a_database_share_the_tries(folder, shared_cache, landscape):
    landscape(0.6)
    for i in range(3):
        (folder / f"gpu{i}.jsonl").write_text((folder / "device.jsonl").read_text())
    members = [Member(folder, i, shared_cache, None, ["--remeasure-s", "1"]).start() for i in range(3)]
    members[0].call("get", problem=gemm(), budget=8)
    eventually(lambda: len(rows(members[0])) > 1, 60)
    time.sleep(6)  # long enough for nine tries, if each daemon made three
    assert all(r["doubt"].startswith(LOW) for r in rows(members[0]))
    assert len(rows(members[0])) <= 1 + 3
    for m in members:
        m.expect_clean_end()
