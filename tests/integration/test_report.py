# SPDX-License-Identifier: Apache-2.0
"""`gemmctl report --html`: well-formed, escaped, and with the numbers that the lists have."""
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import BUILD, DATA, ROOT, RUNNER, SYNTHETIC, gemm

MODELS = {"GEMMD_MODELS": str(ROOT / "python" / "gemmd" / "models.csv")}
HOSTILE = "<script>alert(\"1\")</script> & 'x' \x1b[31m\u202e"


def report(d, folder, *words):
    """The page as a tree of elements: parsing fails unless the page is well-formed."""
    path = folder / "report.html"
    d.ctl("report", "--html", path, *words, env=MODELS)
    page = path.read_text()
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert "\x1b" not in page
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))


def section(tree, name):
    found = tree.find(f".//section[@id='{name}']")
    assert found is not None, name
    return found


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def table(tree, name):
    """The rows of a section's first table, as maps of title to text."""
    titles = [text_of(th) for th in section(tree, name).find(".//table").iter("th")]
    return [dict(zip(titles, map(text_of, tr.iter("td")), strict=True))
            for tr in section(tree, name).find(".//table/tbody").iter("tr")]


@pytest.fixture
def tuned(daemon):
    """A daemon that has tuned a layer of a known model in two modes, and a shape of no model."""
    d = daemon()
    with d.connect() as c:
        for problem in (gemm(m=4096, n=1536, k=2048, experts=128, topk=8, permute_x=True),
                        gemm("dW", m=4096, n=1536, k=2048, experts=128, topk=8, permute_x=True), gemm()):
            c.call("get", problem=problem, budget=12)
    return d


def test_an_empty_database_gives_a_page_that_says_so(daemon, folder):
    tree = report(daemon(), folder)
    assert "No answer is known yet" in text_of(section(tree, "layers"))
    assert "No kernel is in quarantine" in text_of(section(tree, "quarantine"))
    assert tree.find(".//nav") is None and tree.find(".//table/tbody/tr") is not None, "events: gemmd has started"


def test_layers_and_keys_have_the_numbers_of_the_list(tuned, folder):
    tree = report(tuned, folder)
    rows = {(r["MODEL AND LAYER"], r["MODE"]): r for r in table(tree, "layers")}
    assert set(rows) == {("qwen3-30b-a3b gate_up", "forward"), ("qwen3-30b-a3b gate_up", "dW"),
                         ("256 x 256, 4 experts", "forward")}
    best = {(b["problem"]["N"], b["problem"]["mode"]): b for b in tuned.ctl_json("list")}
    row, answer = rows["qwen3-30b-a3b gate_up", "dW"], best[1536, "dW"]
    assert row["KEYS"] == "1" and row["M"] == "4096"
    assert row["% OF FLOOR"] == f"{answer['floor_percent']:.1f}" and row["VS REF"] == f"{answer['speedup']:.2f}x"
    bar = section(tree, "layers").find(".//td/svg/rect[@class='fill']")
    assert bar is not None and 0 < float(bar.get("width")) <= 100
    losses = [b["time_us"] - b["floor_us"] for b in best.values()]
    keys = table(tree, "keys")
    assert [k["KEY"] for k in keys] == [b["key"][:8] for _, b in sorted(zip(losses, best.values()),
                                                                       key=lambda x: -x[0])]


def test_every_trial_of_a_drawn_key_is_a_mark_in_both_drawings(tuned, folder):
    tree = report(tuned, folder)
    marks = 0
    for svg in section(tree, "keys-drawn").iter("svg"):
        marks += len([c for c in svg.iter("circle") if c.get("class") != "winner"])
        marks += len(svg.findall("path[@class='bad']"))
    trials = [t for t in tuned.ctl_json("list", "--what", "trials") if t["stage"] != "baseline"]
    assert marks == 2 * len(trials) > 0
    assert len(section(tree, "keys-drawn").findall(".//circle[@class='winner']")) == 2 * 3


def test_texts_of_other_users_stay_texts(daemon, folder):
    hostile = folder / "hostile.jsonl"
    head, rest = (DATA / "synthetic.jsonl").read_text().split("\n", 1)
    device = json.loads(head)
    device["device"]["name"] = "<b>\"A\" & 'B'</b>"
    hostile.write_text(json.dumps(device) + "\n" + rest)
    d = daemon(f"replay:{hostile}")
    problem = {"op": "custom:report", "text": HOSTILE}
    with d.connect() as c:
        c.call("put", problem=problem, config={"way": HOSTILE}, time_us=3)
        c.call("record", problem=problem, trials=[{"config": {"way": "<i>"}, "status": "compile", "reason": HOSTILE},
                                                  {"config": {"way": HOSTILE}, "time_us": 4, "status": "ok"}])
    tree = report(d, folder)
    assert text_of(tree.find(".//h1")) == "gemmd on <b>\"A\" & 'B'</b>"
    drawn = section(tree, "keys-drawn")
    assert "alert" in text_of(drawn.find(".//code"))
    failed = [t.text for t in drawn.findall(".//path[@class='bad']/title")]
    assert failed == [f"compile: {HOSTILE}; way=<i>".replace("\x1b", "\\x1b").replace("\u202e", r"\xe2\x80\xae")]
    assert not list(tree.iter("script")) and not list(tree.iter("i"))


def test_quarantine_has_the_reasons(daemon, folder):
    from test_quarantine import crash_it, crash_of
    from test_faults import faults
    d = daemon()
    with d.connect() as c:
        config = c.call("get", problem=gemm(), budget=8)["config"]
    assert d.stop() == 0
    d.env.update(faults(folder, crash_of(config)))
    d.start()
    with d.connect() as c:
        variant = crash_it(c, gemm(m=700), config)
    rows = table(report(d, folder), "quarantine")
    assert [r["VARIANT"] for r in rows] == [variant[:8]]
    assert rows[0]["REASON"] == " ".join(d.sql("SELECT reason FROM quarantine")[0][0].split())


def test_of_named_problems_only_these_and_those_without_an_answer(tuned, folder):
    tree = report(tuned, folder, "--model", "qwen3-30b-a3b", "--tokens", "512,1024")
    assert {(r["MODEL AND LAYER"], r["MODE"]) for r in table(tree, "layers")} == {
        ("qwen3-30b-a3b gate_up", "forward"), ("qwen3-30b-a3b gate_up", "dW")}
    assert "10 of the 12 named problems have no answer of their own" in text_of(section(tree, "layers"))


def test_what_changed_between_two_generations(tuned, folder):
    before = tuned.status()["generation"]
    best = next(b for b in tuned.ctl_json("list") if b["problem"]["N"] == 256)
    trial = next(t for t in tuned.ctl_json("trials", best["key"]) if t["status"] == "ok" and t["config"] != best["config"])
    with tuned.connect() as c:
        c.call("pin", problem=best["problem"] | {"op": "grouped_gemm"}, config=trial["config"])
    rows = table(report(tuned, folder, "--from", before), "changes")
    assert [(r["KEY"], r["SOURCE"]) for r in rows] == [(best["key"][:8], "manual")]
    changed = next(name for name in trial["config"] if trial["config"][name] != best["config"][name])
    assert f"{changed} {best['config'][changed]} to {trial['config'][changed]}".lower() in rows[0]["CHANGE"].lower()
    assert "0 rows of 0 keys" in text_of(section(report(tuned, folder, "--from", before, "--to", before), "changes"))
    rows = table(report(tuned, folder, "--from", 0), "changes")
    assert len(rows) == 3 and [r["CHANGE"] for r in rows] == ["new"] * 3


def test_many_keys_are_summed_up(daemon, folder):
    d = daemon()
    assert d.stop() == 0
    filled = folder / "filled.db"
    subprocess.run([BUILD / "tests" / "bench" / "serving" / "serving_fill", RUNNER, SYNTHETIC, filled, "2000"], check=True)
    shutil.copyfile(filled, d.database)
    d.start()
    tree = report(d, folder)
    rows = table(tree, "layers")
    assert sum(int(r["KEYS"]) for r in rows) == 2000
    others = [r for r in rows if r["MODEL AND LAYER"].endswith("other layers")]
    assert [r["MODE"] for r in others] == ["forward", "dX", "dW"] and others == rows[150:]
    for r in others:
        assert r["MODEL AND LAYER"] == f"{r['KEYS']} other layers" and int(r["KEYS"]) > 600
    sizes = [(int(r["N"]), int(r["K"])) for r in rows[:150]]
    assert sizes == sorted(sizes)
    assert "The 200 of 2000 keys" in text_of(section(tree, "keys"))
    assert "No trials are known" in text_of(section(tree, "keys-drawn"))
    assert len((folder / "report.html").read_bytes()) < 1 << 20


def test_an_older_kernel_source_makes_rows_stale(tuned, folder):
    assert "No answer is stale" in text_of(section(report(tuned, folder), "trust"))
    rows = json.loads(tuned.ctl("export").stdout)
    for i, row in enumerate(rows["rows"]):
        row["stamp"] = re.sub(r"src=\w+", "src=000000000000", row["stamp"])
        row["problem"]["M"] *= 2
        row.pop("key")
    old = folder / "old.json"
    old.write_text(json.dumps(rows))
    tuned.ctl("import", old)
    assert "3 answers are stale" in text_of(section(report(tuned, folder), "trust"))


def test_a_wrong_table_of_models_costs_the_layers_names_alone(daemon_of_module, folder):
    table = folder / "models.csv"
    table.write_text("model,experts,topk,hidden,inter\nfoo,4,1,x,8\n")
    said = daemon_of_module.ctl("report", "--html", folder / "x.html", env={"GEMMD_MODELS": str(table)}).stderr
    assert f"layers get no names: the table of known models: {table}, line 2: hidden" in said
    assert (folder / "x.html").exists()


@pytest.mark.parametrize("words, code, sentence", [
    ([], 2, "give --html FILE, as in `gemmctl report --html report.html`"),
    (["report.html"], 2, "give --html FILE, as in `gemmctl report --html report.html`"),
    (["--html", ""], 2, "give --html FILE, as in `gemmctl report --html report.html`"),
    (["--html", "-", "--json"], 2, "give --html a file"),
    (["--html", "x.html", "--from", "9", "--to", "2"], 2, "the newest generation is 0"),
    (["--html", "x.html", "--from", "9"], 2, "--from is 9, later than --to, which is 0"),
    (["--html", "x.html", "--from", "new"], 2, "--from takes"),
    (["--html", "x.html", "--model", "none", "--tokens", "8"], 2, "no model \"none\""),
    (["--html", "x.html", "--model", "qwen3-30b-a3b"], 2, "needs --tokens"),
    (["--html", "/dev/null/x.html"], 1, "/dev/null"),
], ids=lambda x: " ".join(x)[:30] if isinstance(x, list) else None)
def test_bad_input_is_a_sentence(daemon_of_module, words, code, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = daemon_of_module.ctl("report", *words, check=False, env=MODELS)
    assert said.returncode == code and sentence in said.stderr, said
    assert "--moe" not in said.stderr, "no option that was not given"
    assert not list(tmp_path.iterdir())


def test_the_file_is_replaced_whole_or_not_at_all(daemon, folder):
    d = daemon()
    path = folder / "report.html"
    path.write_text("before")
    path.chmod(0o640)
    written = d.ctl_json("report", "--html", path)
    assert written["keys"] == 0 and written["bytes"] == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o640
    whole = path.read_text()
    said = subprocess.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "-", str(BUILD / "client" / "gemmctl"), "report",
                           "--html", str(path), "--socket", str(d.socket)], capture_output=True, text=True)
    assert said.returncode == 1 and f"cannot write {path}" in said.stderr
    assert path.read_text() == whole and [p.name for p in folder.glob("*.part")] == []
