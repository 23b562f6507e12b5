# SPDX-License-Identifier: Apache-2.0
"""A key that is tuned again keeps its best, unless the new winner is better by more than --min-gain
in the same finals. The landscapes have no noise, so gains are exact."""
import json

import pytest

from conftest import DATA, eventually, gemm

PROBLEM = "grouped_gemm mode=forward M=256 N=256 K=256 experts=4 topk=2"
TILES = [(32, 64, 64), (64, 32, 64), (16, 128, 64), (32, 64, 32), (64, 32, 32)]
STRATEGIES = ["ranked", "exhaustive", "random", "genetic"]


def config(tile, group=8, stages=5):
    m, n, k = TILES[tile]
    return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group,
            "num_stages": stages, "num_warps": 4}


def text(c):
    return " ".join(f"{name}={value}" for name, value in c.items())


OLD, NEW = config(1), config(3)


class Key:
    """A key on a replayed device whose times can be changed while the daemon is down."""

    def __init__(self, daemon, folder, options=()):
        self.folder, self.env = folder, {"GEMMD_REPLAY_FAULTS": str(folder / "faults.jsonl")}
        self.faults()
        self.times([(OLD, 100.0), (NEW, 110.0)])
        self.d = daemon(f"replay:{folder / 'landscape.jsonl'}", options, self.env)

    def times(self, us):
        """Sets the times of these configs; all other configs take at least 120 us."""
        everything = {text(config(tile, group)): 120.0 + tile + group
                      for tile in range(len(TILES)) for group in (1, 4, 8)}
        everything.update({text(c): value for c, value in us})
        first = (DATA / "synthetic.jsonl").read_text().splitlines()[0]
        lines = [first, json.dumps({"problem": PROBLEM})]
        lines += [json.dumps({"config": c, "samples_us": [us] * 5}) for c, us in everything.items()]
        (self.folder / "landscape.jsonl").write_text("\n".join(lines) + "\n")

    def faults(self, *rules):
        (self.folder / "faults.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rules))

    def again(self, us, *faults, **query):
        """Stops the daemon, changes the times, and tunes the key again."""
        assert self.d.stop() == 0
        self.times(us)
        self.faults(*faults)
        self.d.start()
        return self.d.call("tune", problem=gemm(), **query)

    def gate(self):
        """The reason of the last re-tuning, which `why`, the events and the log must all have."""
        why = self.d.call("why", problem=gemm())
        reason = why["trial"]["reason"]
        with self.d.connect() as c:
            events = [e["text"] for e in c.list("events", kind="gate", sort="id")]
        assert reason in events[-1] and reason in self.d.text()
        assert reason in self.d.ctl("why", "--m", 256, "--n", 256, "--k", 256, "--experts", 4,
                                    "--topk", 2).stdout
        return reason


@pytest.fixture
def key(daemon, folder):
    k = Key(daemon, folder)
    assert k.d.call("tune", problem=gemm())["config"] == OLD
    return k


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_half_a_per_cent_does_not_replace_and_three_do(key, strategy):
    before = key.d.call("get", problem=gemm())
    stays = key.again([(OLD, 100.0), (NEW, 99.5)], strategy=strategy)
    assert stays["config"] == OLD and stays["generation"] > before["generation"]
    assert "stays" in stays["note"] and stays["source"] == "tuned"
    assert "0.50 % faster" in key.gate() and "more than 1 %" in key.gate()
    with key.d.connect() as c:
        finals = [t for t in c.list("trials", key=stays["key"], stage="final", sort="id")]
    assert [t["config"] for t in finals if t["reason"]] == [OLD]
    assert {text(OLD), text(NEW)} <= {text_of(t) for t in finals}, "they met in the finals"
    goes = key.again([(OLD, 100.0), (NEW, 97.0)], strategy=strategy)
    assert goes["config"] == NEW and goes["time_us"] == pytest.approx(97.0)
    assert "replaces" in key.gate() and "3.00 % faster" in key.gate()


def text_of(trial):
    return text({name: trial["config"][name] for name in OLD})


def test_what_is_far_behind_is_a_finalist_and_goes(key):
    answer = key.again([(OLD, 200.0), (NEW, 100.0)])
    assert answer["config"] == NEW and "50.00 % faster" in key.gate()
    with key.d.connect() as c:
        rows = c.list("trials", key=answer["key"], stage="final", sort="id")
    assert text(OLD) in [text_of(t) for t in rows]


def test_it_has_its_place_in_any_budget(key):
    for query in ({"budget": 1}, {"budget": 2}, {"wall_ms": 1}, {"budget_ms": 1}):
        assert key.again([(OLD, 100.0), (NEW, 99.5)], **query)["config"] == OLD
        assert "stays" in key.gate()


def test_it_wins_again(key):
    assert key.again([(OLD, 100.0), (NEW, 100.4)])["config"] == OLD
    assert "it won again; the next was 0.40 % slower" in key.gate()
    assert key.again([(OLD, 100.0), (NEW, 104.0)])["config"] == OLD
    assert "nothing else came near it" in key.gate()


def test_the_margin_is_a_setting(daemon, folder):
    k = Key(daemon, folder, ["--min-gain", "0.25"])
    k.d.call("tune", problem=gemm())
    assert k.again([(OLD, 100.0), (NEW, 99.5)])["config"] == NEW
    k.d.options = ["--min-gain", "5"]
    assert k.again([(OLD, 96.5), (NEW, 99.5)])["config"] == NEW
    assert "not faster by more than 5 %" in k.gate()


@pytest.mark.parametrize("fault,stage", [("wrong", "verify"), ("crash", "time")])
def test_one_that_fails_defends_nothing(key, fault, stage):
    rule = {"config": text(OLD), "fault": fault, "stage": stage}
    answer = key.again([(OLD, 100.0), (NEW, 99.5)], rule)
    assert answer["config"] == NEW and "replaces the former best" in key.gate()


def test_a_quarantined_one_defends_nothing(key):
    crash = {"config": text(OLD), "fault": "crash", "stage": "time"}
    key.again([(OLD, 100.0), (NEW, 130.0)], crash)
    key.again([(OLD, 100.0), (NEW, 99.5)])  # without the crash; the variant is still in quarantine
    with key.d.connect() as c:
        assert c.list("quarantine")
    assert key.d.call("get", problem=gemm())["config"] == NEW


def test_hints_and_pins_are_not_defended(key):
    """Any gain replaces a hint (a best of other kernels). No gain replaces a pin."""
    landscape = key.folder / "landscape.jsonl"
    assert key.d.stop() == 0
    key.times([(OLD, 100.0), (NEW, 99.5)])
    landscape.write_text(landscape.read_text().replace("synthetic 1", "synthetic 2"))
    key.d.start()
    assert key.d.call("tune", problem=gemm())["config"] == NEW
    with key.d.connect() as c:
        assert not c.list("events", kind="gate")
    key.d.call("pin", problem=gemm(), config=OLD)
    answer = key.d.call("tune", problem=gemm())
    assert answer["config"] == NEW and "pinned" in answer["note"]
    assert key.d.call("get", problem=gemm())["config"] == OLD


def test_killed_in_between(key):
    """After a kill, the repeated tuning must still beat the former best."""
    slow = {"config": text(NEW), "fault": "hang", "stage": "time", "once": str(key.folder / "hung")}
    assert key.d.stop() == 0
    key.times([(OLD, 100.0), (NEW, 99.5)])
    key.faults(slow)
    key.d.start()
    with key.d.connect() as c:
        c.send("tune", problem=gemm(), strategy="exhaustive")
        eventually((key.folder / "hung").exists)
        key.d.kill()
    key.d.start()
    assert key.d.call("get", problem=gemm())["config"] == OLD
    assert key.d.call("tune", problem=gemm(), strategy="exhaustive")["config"] == OLD
    assert "0.50 % faster" in key.gate()
