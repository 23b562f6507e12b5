# SPDX-License-Identifier: Apache-2.0
"""Nearly equal devices: another power limit, a GiB less, another MIG profile. Their results are
hints, and answers when the owner trusts them."""
import json
import pathlib

import pytest

from conftest import DATA, SYNTHETIC, RpcError, gemm

ORIGINAL = pathlib.Path(SYNTHETIC.split(":", 1)[1]).read_text()
SIZE = ["--m", 256, "--n", 256, "--k", 256]


def device(folder, name, **changes):
    """The synthetic landscape on a device of another class."""
    head, rest = ORIGINAL.split("\n", 1)
    head = json.loads(head)
    head["device"].update(changes)
    folder.joinpath(name).mkdir()
    path = folder / name / "synthetic.jsonl"
    path.write_text(json.dumps(head) + "\n" + rest)
    return f"replay:{path}"


def odd_config(c, problem):
    """A legal config that no search with a small budget would try."""
    default = c.call("get", problem=problem, wait="cached")["config"]
    params = [p for p in c.call("space", problem=problem)["params"] if not p["run_time"]]
    return [config for p in params for v in p["values"] if v != default[p["name"]]
            for config in [{**default, p["name"]: v}]
            if c.call("check", problem=problem, config=config)["valid"]][-1]


def measured(c, key):
    return [t["config"] for t in c.list("trials", key=key) if t["stage"] == "measure"]


@pytest.fixture
def results(daemon, folder):
    """A pinned config of an A100 with 400 W, in its daemon's database and as a file."""
    d = daemon()
    with d.connect() as c:
        config = odd_config(c, gemm())
        assert c.call("pin", problem=gemm(), config=config)["source"] == "manual"
    d.ctl("export", "--to", folder / "export.json")
    assert d.stop() == 0
    d.database.rename(folder / "results.db")
    return d, config, folder / "export.json"


CHANGES = [{"power_limit_w": 300}, {"memory_bytes": 84825604096}, {"mig": "7g.80gb"}]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: next(iter(c)))
def test_results_of_a_nearly_equal_device_are_tried_first(results, folder, changes):
    d, config, export = results
    d.device = device(folder, "other", **changes)
    d.start()
    assert d.ctl("import", export).stdout == "1 imported, 0 skipped\n"
    with d.connect() as c:
        assert c.call("get", problem=gemm(), wait="cached")["config"] != config, "it is a hint only"
        answer = c.call("get", problem=gemm(), budget=3)
        assert config in measured(c, answer["key"])
        assert answer["source"] == "tuned"


def test_results_of_a_nearly_equal_device_in_the_database_are_tried_first(results, folder):
    """A daemon of the other class tries the pinned config without a change of its row, so also after a restart."""
    d, config, _ = results
    (folder / "results.db").rename(d.database)
    d.device = device(folder, "other", power_limit_w=300)
    d.start()
    with d.connect() as c:
        answer = c.call("get", problem=gemm(), budget=3)
        assert config in measured(c, answer["key"])


def test_trusted_results_of_a_nearly_equal_device_answer_until_they_are_measured_here(results, folder):
    d, config, export = results
    d.device = device(folder, "other", power_limit_w=300, memory_bytes=84825604096)
    d.start()
    for _ in range(2):
        assert d.ctl("import", "--trust", export).stdout == "1 imported, 0 skipped\n"
    for _ in range(2):  # also after a restart
        with d.connect() as c:
            answer = c.call("get", problem=gemm(), wait="cached")
            assert (answer["tier"], answer["source"], answer["config"]) == ("exact", "trusted", config)
            assert "not measured here" in answer["note"] and "pl400" in answer["note"]
            assert len(c.list("history", key=answer["key"])) == 1
            assert c.call("get", problem=gemm())["config"] == config, "nothing is tuned"
            why = c.call("why", problem=gemm())
            assert why["verdict"] == "trusted" and any("not measured here" in doubt for doubt in why["doubts"]), why
            assert not any("no longer kept" in doubt for doubt in why["doubts"]), "it never was here"
        with pytest.raises(RpcError, match="gemmd's owner trusts"):
            d.call("put", problem=gemm(), config=config)
        d.ctl("export", "--to", folder / "here.json")
        said = d.ctl("import", folder / "here.json", check=False)
        assert said.returncode == 1 and "gemmd's owner trusts" in said.stderr, said
        said = d.ctl("import", "--format", "unsloth", DATA / "exchange" / "unsloth-forward.csv", *SIZE,
                     "--experts", 4, "--topk", 2, check=False)
        assert said.returncode == 1 and "gemmd's owner trusts" in said.stderr, said
        assert d.stop() == 0
        d.start()
    with d.connect() as c:
        here = c.call("tune", problem=gemm(), budget=3)
        assert here["source"] == "tuned"
        assert config in measured(c, here["key"])
    said = d.ctl("import", "--trust", export, check=False)
    assert said.returncode == 1 and "measured here" in said.stderr, "what was measured here stays"


def test_trusted_results_of_custom_ops_time_nothing_again(daemon, folder):
    problem, configs = {"op": "custom:k", "n": 8}, ["BLOCK=64", "BLOCK=128"]
    d = daemon()
    with d.connect() as c:
        c.call("record", problem=problem, trials=[{"config": config, "time_us": t}
                                                  for config, t in zip(configs, (2.0, 1.0))])
        c.call("put", problem=problem, config=configs[1], time_us=1.0)
    d.ctl("export", "--to", folder / "export.json")
    assert d.stop() == 0
    d.database.unlink()
    d.device = device(folder, "other", power_limit_w=300)
    d.start()
    assert d.ctl("import", "--trust", folder / "export.json").stdout == "1 imported, 0 skipped, with 2 trials\n"
    got = d.call("acquire", problem=problem, configs=configs)
    assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 128}


@pytest.mark.parametrize("words", [[], ["--trust"]], ids=["hints", "trust"])
def test_an_import_that_takes_nothing_fails_and_counts_its_reasons(results, folder, words):
    d, _, export = results
    document = json.loads(export.read_text())
    row = document["rows"][0]
    document["rows"] = [{**row, "problem": {**row["problem"], "N": n}} for n in (256, 512, 1024)] + [{"op": "nothing"}]
    export.write_text(json.dumps(document))
    d.device = device(folder, "other", sm_count=98)
    d.start()
    said = d.ctl("import", *words, export, check=False)
    assert said.returncode == 1 and said.stdout == "0 imported, 4 skipped\n"
    assert "3 rows skipped, the first is row 0" in said.stderr and "number of SMs" in said.stderr
    assert "row 3 skipped" in said.stderr and "nothing was imported" in said.stderr
    assert d.ctl("import", *words, "--json", export, check=False).returncode == 1


def test_only_rows_of_these_kernels_can_be_trusted(results, folder):
    d, _, export = results
    document = json.loads(export.read_text())
    document["rows"][0]["stamp"] = document["rows"][0]["stamp"].replace("src=", "src=0")
    export.write_text(json.dumps(document))
    d.database.unlink(missing_ok=True)
    d.start()
    assert "import it without trust, as a hint" in d.ctl("import", "--trust", export, check=False).stderr
    assert d.call("get", problem=gemm(), wait="cached")["tier"] == "default"
    d.ctl("import", export)
