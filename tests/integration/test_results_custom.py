# SPDX-License-Identifier: Apache-2.0
"""gemmctl's tables for `custom:` problems, which have no mode, no experts and no topk."""
import os

PROBLEM = "custom:sort dtype=fp32 n=4096"
COLUMNS = "MODE,E,TOPK,FLAGS,CONFIG"


def put(d, problem, config):
    op, *fields = problem.split()
    fields = dict(field.split("=") for field in fields)
    d.call("put", problem={"op": op, **fields, "n": int(fields["n"])}, config=config, time_us=9.0)


def shown(result):
    """The single row of a table, by its titles. Only FLAGS and CONFIG have blanks."""
    titles, row = result.stdout.splitlines()
    first = dict(zip(titles.split(), row.split()))
    behind = min(titles.find(t) for t in ("TIME us", "CONFIG") if t in titles)
    flags = row[titles.index("FLAGS"):behind].strip() if "FLAGS" in titles else ""
    return {"MODE": first["MODE"], "E": first.get("E", "-"), "TOPK": first.get("TOPK", "-"), "FLAGS": flags,
            "CONFIG": row[titles.index("CONFIG"):].strip()}


def expect(result):
    assert shown(result) == {"MODE": "custom:sort", "E": "-", "TOPK": "-",
                             "FLAGS": "dtype=fp32 n=4096", "CONFIG": "BLOCK=64"}


def test_a_custom_answer_is_shown_as_what_it_is(daemon):
    d = daemon()
    put(d, PROBLEM, {"BLOCK": 64})
    expect(d.ctl("get", "--columns", COLUMNS, PROBLEM))


def test_a_promoted_answer_names_its_problem(daemon):
    d = daemon()
    put(d, PROBLEM, {"BLOCK": 64})
    own, = d.ctl_json("list")
    expect(d.ctl("promote", own["key"][:8]))
    row = d.ctl_json("promote", f"{PROBLEM} user={os.getuid()}")
    assert row["problem"] == {"op": "custom:sort", "dtype": "fp32", "n": 4096}
    assert row["mode"] == "custom:sort"


def test_experts_and_topk_left_out_are_one_of_a_product(daemon):
    d = daemon()
    result = d.ctl("get", "--columns", COLUMNS, "--m", 256, "--n", 256, "--k", 256, "--wait", "cached")
    row = shown(result)
    assert (row["MODE"], row["E"], row["TOPK"]) == ("forward", "1", "1")
