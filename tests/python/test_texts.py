# SPDX-License-Identifier: Apache-2.0
"""gemmd.texts, which keeps values of other tuners' caches in the daemon, each in one row or in several, under a lease.
Also without a daemon, with a daemon that dies, and with rows that are gone."""
import random
import threading
import warnings

import pytest

import gemmd
from gemmd import texts
from gemmd.configs import read_config, write_config

LONG = "".join(random.Random(1).choices("0123456789abcdef \\\"{}\n", k=6000))


@pytest.fixture
def make(cpu, monkeypatch):
    monkeypatch.setenv("GEMMD_SOCKET", str(cpu.socket))
    monkeypatch.setattr(texts, "_quiet_until", {})
    monkeypatch.setattr(texts, "_warned", False)
    return lambda: texts.Texts("test", "the test goes on")


@pytest.mark.no_library
@pytest.mark.parametrize("text", ["", "a", "é\n\"\\=, " * 10, "x" * 504, "x" * 505, "\0", "\0" * 600, "é" * 900, "\\\"" * 300, LONG])
def test_a_text_becomes_configs_that_fit_and_comes_back(text):
    row, name, parts = texts.split(text)
    lines = [write_config(config) for config in (row, *parts)]
    assert all(len(line.encode()) <= texts.CONFIG_BYTES_MAX for line in lines)
    row, *parts = map(read_config, lines)
    assert (row["text"] if name is None else texts.join(name, [part["text"] for part in parts])) == text


@pytest.mark.no_library
def test_parts_that_are_not_those_of_the_text_give_none():
    _, name, parts = texts.split(LONG)
    pieces = [part["text"] for part in parts]
    assert texts.join(name, pieces) == LONG and len(pieces) > 2
    assert texts.join(name, pieces[:-1]) is None and texts.join(name, ["none"]) is None
    assert texts.join("0" * 32, pieces) is None
    with pytest.raises(gemmd.Invalid, match="parts fit"):
        texts.split(random.Random(1).randbytes(30000).hex())


def test_texts_come_back_also_after_a_restart(cpu, make):
    make().write("short", "one\nrow")
    make().write("long", LONG)
    make().write("long", LONG + "2")
    cpu.stop()
    cpu.start()
    assert make().read("short") == "one\nrow" and make().read("long") == LONG + "2"
    assert make().newest(2) == [LONG + "2", "one\nrow"] and make().read("other") is None


def test_a_text_that_lost_a_part_is_unknown_and_can_be_written_again(cpu, make):
    make().write("long", LONG)
    part = cpu.call("list", what="best", filter={"op": "custom:test.part"})["rows"][1]
    cpu.call("evict", key=part["key"])
    assert make().read("long") is None and make().acquire("long", lease_ms=60000) is None
    make().write("long", LONG)
    assert make().read("long") == LONG


def test_waiters_get_the_text_and_the_lease_of_a_dead_holder_is_free(make):
    holder, got = make(), []
    assert holder.acquire("k", lease_ms=60000) is None
    waiters = [threading.Thread(target=lambda: got.append(make().acquire("k", lease_ms=60000))) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    holder.write("k", LONG)
    for waiter in waiters:
        waiter.join()
    assert got == [LONG] * 3
    holder, got = make(), []
    assert holder.acquire("other", lease_ms=60000) is None
    waiter = threading.Thread(target=lambda: got.append(make().acquire("other", lease_ms=60000)))
    waiter.start()
    del holder  # closes the holder's connection, as the end of its process would
    waiter.join()
    assert got == [None]


@pytest.mark.parametrize("pin", ["generation", "lock file"])
def test_a_job_with_a_pin_or_a_lock_file_shares_long_texts(cpu, make, tmp_path, monkeypatch, pin):
    make().write("first", LONG)
    if pin == "generation":
        monkeypatch.setenv("GEMMD_GENERATION", "0")
    else:
        problem = "grouped_gemm mode=forward M=64 N=32 K=64 experts=4 topk=1 dtype_in=fp32"
        cpu.ctl("tune", problem, "--budget", "1")
        cpu.ctl("lock", problem, "--to", tmp_path / "gemmd.lock")
        monkeypatch.setenv("GEMMD_LOCK", str(tmp_path / "gemmd.lock"))
    assert make().read("first") == LONG and make().acquire("first", lease_ms=60000) == LONG
    assert make().newest(1) == [LONG]
    holder = make()
    assert holder.acquire("k", lease_ms=60000) is None
    holder.write("k", LONG)
    assert make().acquire("k", lease_ms=60000) == LONG


def test_a_wait_has_an_end(make):
    holder = make()
    assert holder.acquire("k", lease_ms=60000) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on a busy machine the daemon's answer itself may be late
        assert make().acquire("k", lease_ms=60000, deadline_ms=300) is None
    holder.release("k")
    texts._quiet_until.clear()
    next_one = make()
    assert next_one.acquire("k", lease_ms=60000) is None


def test_a_daemon_that_dies_costs_one_warning_and_no_error(cpu, make):
    ours, got = make(), []
    assert ours.acquire("k", lease_ms=60000) is None
    with pytest.warns(RuntimeWarning, match="the test goes on") as said:
        waiter = threading.Thread(target=lambda: got.append(make().acquire("k", lease_ms=60000)))
        waiter.start()
        cpu.stop()
        waiter.join()
        ours.write("k", LONG)
        assert ours.read("k") is None and ours.newest(9) == []
        ours.release("k")
    assert got == [None] and len(said) == 1


def test_without_libgemmd_nothing_is_known(make, monkeypatch):
    def missing():
        raise OSError("no libgemmd.so")

    monkeypatch.setattr(gemmd.ffi, "shared_library", missing)
    with pytest.warns(RuntimeWarning, match="no libgemmd.so") as said:
        assert make().read("k") is None and make().acquire("k", lease_ms=60000) is None
        make().write("k", LONG)
    assert len(said) == 1
