# SPDX-License-Identifier: Apache-2.0
"""The portfolio: few configs for all known shapes, listed, exported, and served as a tier."""
import json

import pytest

from conftest import DATA, eventually, gemm

SIZES = [(256, 256), (1024, 256), (256, 512), (4096, 512)]


def tune_all(d, configs=None, **more):
    """Tunes each shape, then measures `configs` at every shape; by default all configs of the first shape's search."""
    with d.connect() as c:
        first = c.call("tune", problem=gemm(m=SIZES[0][0], n=SIZES[0][1], **more), budget=12)
        configs = configs or [t["config"] for t in c.list("trials", key=first["key"], status="ok")]
        for m, n in SIZES[1:]:
            c.call("tune", problem=gemm(m=m, n=n, **more), budget=12)
        for m, n in SIZES:
            c.call("tune", problem=gemm(m=m, n=n, **more), configs=configs)


def tier_of(d, problem):
    return d.call("get", problem=problem, wait="cached")


def served(d, problem, config=None):
    """Waits for the new portfolio, which is made some time after results have changed."""
    return eventually(lambda: (a := tier_of(d, problem))["tier"] == "portfolio"
                      and (config is None or a["config"] == config) and a)


def test_bounded_regret_over_all_shapes(daemon):
    d = daemon()
    tune_all(d)
    with d.connect() as c:
        sizes = []
        for bound in (0, 5, 30):
            rows = c.list("portfolio", bound=bound)
            assert len(rows) == len(SIZES) == rows[0]["shapes"]
            sizes.append(rows[0]["members"])
            assert len({str(r["config"]) for r in rows}) == sizes[-1]
            for r in rows:  # computes the regret from the trials; the newest trial of a config counts
                ratios = {}
                for t in c.list("trials", key=r["key"], status="ok"):
                    ratios[str(t["config"])] = t["ratio"]
                regret = 100 * (ratios[str(r["config"])] / min(ratios.values()) - 1)
                assert r["regret_percent"] == pytest.approx(regret) and regret <= bound + 1e-9
        assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0], sizes
        assert c.list("portfolio", bound=5) == c.list("portfolio", bound=5)
    # the same document on every run
    text = d.ctl("export", "--format", "portfolio").stdout
    assert text == d.ctl("export", "--format", "portfolio").stdout
    group = json.loads(text)["groups"][0]
    assert group["max_regret_percent"] <= group["bound_percent"] == 5 and group["mode"] == "forward"
    assert sum(len(x["shapes"]) for x in group["configs"]) == len(SIZES)
    tight = d.ctl("export", "--format", "portfolio", "--where", "bound=0", "--to",
                  d.folder / "out" / "portfolio.json")
    assert f"{sizes[0]} configs for 4 shapes" in tight.stderr
    assert len(json.loads((d.folder / "out" / "portfolio.json").read_text())["groups"][0]["configs"]
               ) == sizes[0]
    assert "REGRET %" in d.ctl("list", "--what", "portfolio").stdout
    assert d.ctl("export", "--format", "portfolio", "--where", "mode=dW", check=False).returncode == 1


def test_it_answers_between_near_and_default(daemon):
    d = daemon()
    tune_all(d)
    assert tier_of(d, gemm(m=362))["tier"] == "near", "a neighbour is better"
    asked = gemm(m=4096, n=512, permute_x=True)  # no known key has these fields
    with d.connect() as c:
        member = next(r for r in c.list("portfolio") if r["problem"]["M"] == 4096)
    answer = served(d, asked, member["config"])
    assert member["key"][:6] in answer["note"]
    assert answer["time_us"] is None and answer["module"] == "" and answer["family"] == "grouped_gemm"
    assert d.call("check", problem=asked, config=answer["config"])["valid"]
    why = d.call("why", problem=asked)
    assert why["answer"]["tier"] == "portfolio" and why["confidence"] == "low"
    assert why["row"]["key"] == member["key"]
    # keys of other dtypes and modes have no portfolio
    assert tier_of(d, gemm(permute_x=True, dtype_in="fp16"))["tier"] == "default"
    assert tier_of(d, gemm("dX", permute_x=True))["tier"] == "default"
    assert d.stop() == 0
    d.start()
    assert served(d, asked)["config"] == answer["config"], "it is there after a start, too"


def test_members_are_checked_for_the_asked_problem(daemon):
    d = daemon(f"replay:{DATA / 'synthetic-hopper.jsonl'}")
    problem = gemm("dW", m=1024, n=512, k=512)
    with d.connect() as c:
        c.call("tune", problem=problem, budget=8)
        members = [r["config"] for r in c.list("portfolio", mode="dW")]
        eventually(lambda: c.call("status")["portfolio"]["shapes"] == 1)
        for flags in ({"permute_x": True}, {"permute_y": True}, {"accumulate": True}):
            asked = {**problem, **flags}
            valid = [m for m in members if c.call("check", problem=asked, config=m)["valid"]]
            answer = c.call("get", problem=asked, wait="cached")
            assert answer["tier"] == ("portfolio" if valid else "default"), flags
            assert c.call("check", problem=asked, config=answer["config"])["valid"]
        assert answer["tier"] == "default" and "target=portable" in answer["stamp"], \
            "sums into the output are other kernels', and the members are of the device's own"


def test_an_evicted_key_chooses_nothing(daemon):
    """An evict takes effect at once, before the portfolio is made again."""
    d = daemon()
    with d.connect() as c:
        key = c.call("get", problem=gemm(), budget=8)["key"]
        eventually(lambda: c.call("status")["portfolio"]["shapes"] == 1)
        c.call("evict", key=key)
        assert c.call("status")["portfolio"]["shapes"] == 0
        assert c.call("get", problem=gemm(), wait="cached")["tier"] == "default"
        why = c.call("why", problem=gemm())
        assert why["verdict"] == "unknown" and "taken back" in why["because"]


def test_old_stamps_choose_nothing(daemon, folder):
    landscape = folder / "own.jsonl"
    text = (DATA / "synthetic.jsonl").read_text()
    landscape.write_text(text)
    d = daemon(f"replay:{landscape}")
    tune_all(d)
    asked = gemm(m=4096, n=512, permute_x=True)
    served(d, asked)
    assert d.stop() == 0
    landscape.write_text(text.replace("synthetic 1", "synthetic 2"))
    d.start()
    old = d.call("list", what="portfolio")["rows"]
    assert old and all(r["stamp"].endswith("synthetic 1") for r in old), "it is still listed"
    exported = d.ctl("export", "--format", "portfolio")
    assert "not served" in exported.stderr
    with d.connect() as c:  # adds results, so that a portfolio is made while the old rows exist
        c.call("tune", problem=gemm("dX"), budget=16)
        eventually(lambda: tier_of(d, gemm("dX", permute_x=True))["tier"] == "portfolio")
    assert tier_of(d, asked)["tier"] == "default"
    d.call("tune", problem=gemm(m=4096, n=512), budget=16)
    assert served(d, asked)["stamp"].endswith("synthetic 2")
