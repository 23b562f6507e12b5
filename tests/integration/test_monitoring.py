# SPDX-License-Identifier: Apache-2.0
"""docs/monitoring: the alert rules, and the dashboard as Grafana reads it. promtool evaluates the expressions."""
import json
import re

import pytest
from conftest import ROOT
from test_metrics import PROBLEM, PROMTOOL, check_openmetrics, promtool, samples

MONITORING = ROOT / "docs" / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = [p for p in DASHBOARD["panels"] if p["type"] != "row"]
QUERIES = [v for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
MINUTE, MINUTES = "1m", 180
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="no promtool")


def expressions():
    """{name: expression} of panels and variables, with all hosts and GPUs."""
    found = {f"{p['title']} {t['refId']}": t["expr"] for p in PANELS for t in p["targets"]}
    for v in QUERIES:
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", v["query"]).groups()
        found[v["name"]] = f"count by ({label}) ({selector})"
    for name, e in found.items():
        for variable, value in (("$__rate_interval", "4m"), ("$instance", ".*"), ("$gpu", ".*")):
            e = e.replace(variable, value)
        assert not re.search(r"\$[a-z_]", e), e
        found[name] = e
    return found


def check_by_promtool(folder, series, checks):
    """Evaluates {expression: value} at the end of the series, beside the alert rules."""
    tests = {"rule_files": [str(MONITORING / "alerts.yml")], "evaluation_interval": MINUTE, "tests": [{
        "interval": MINUTE, "input_series": [{"series": k, "values": v} for k, v in series.items()],
        "promql_expr_test": [{"expr": e, "eval_time": f"{MINUTES - 10}m", "exp_samples": [{"labels": "{}", "value": v}]}
                             for e, v in checks.items()]}]}
    (folder / "tests.yml").write_text(json.dumps(tests))  # JSON is YAML
    promtool("test", "rules", folder / "tests.yml")


def metrics_of(daemon):
    d = daemon()
    d.call("tune", problem=PROBLEM)
    return d.ctl("metrics").stdout


def test_alerts_and_dashboard_name_metrics_that_exist(daemon):
    text = metrics_of(daemon)
    known = {name for name, _ in samples(text)} | {
        name + ("_total" if kind == "counter" else "") for name, kind in check_openmetrics(text).items()}
    labels = {"instance", "file", "job", "alertname", "alertstate", "__name__"} | set(re.findall(r'[{,](\w+)="', text))
    rules = re.findall(r"^ +expr: (.*)$", (MONITORING / "alerts.yml").read_text(), re.M)
    queries = rules + list(expressions().values())
    assert len(rules) >= 12 and len(queries) >= 40
    for e in queries:
        assert set(re.findall(r"\bgemmd_\w+", e)) <= known, e
        assert set(re.findall(r'[{,](\w+)=~?"', e)) <= labels, e


@needs_promtool
def test_alerts_fire_when_they_should(folder):
    device = 'instance="h",gpu="0",uuid="GPU-1"'
    other = device.replace("0", "1")
    series = {f'gemmd_jobs_queued{{{device}}}': "3x180", f'gemmd_jobs_total{{{device},result="done"}}': "5x180",
              f'gemmd_unsaved_rows{{{device},table="best"}}': "1x180", 'gemmd_up{instance="h",socket="/s"}': "0x180",
              'up{instance="h:9400",job="gemmd"}': "0x180", 'up{instance="h:80",job="web"}': "0x180",
              f'gemmd_runner_deaths_total{{{device},reason="hung"}}': "0+1x180",
              f'gemmd_runner_deaths_total{{{other},reason="hung"}}': "0x120 3x60",  # at the limit
              f'gemmd_start_time_seconds{{{device}}}': "0+60x180", f'gemmd_start_time_seconds{{{other}}}': "9x180",
              f'gemmd_hit_seconds_bucket{{{device},le="0.004"}}': "0+1x180",
              f'gemmd_hit_seconds_bucket{{{device},le="+Inf"}}': "0+10x180"}
    firing = {"GemmdDown": 2, "GemmdQueueStuck": 1, "GemmdUnsaved": 1, "GemmdRunnerDies": 1, "GemmdRestarts": 1,
              "GemmdHitsSlow": 1, "GemmdTuningOff": 0, "GemmdTrialsLost": 0, "GemmdDatabaseSilent": 0}
    # promtool compares all labels and annotations, so the count of firing alerts is asked for as a metric
    check_by_promtool(folder, series, {f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)': n
                                       for name, n in firing.items()})


@needs_promtool
@pytest.mark.parametrize("scraped", [False, True])
def test_each_expression_of_the_dashboard_has_data(daemon, folder, scraped):
    """`scraped`: Prometheus scrapes each gemmd, and there is no gemmd_up; else it reads a text file of two daemons."""
    series = {}
    for line in metrics_of(daemon).splitlines():
        if line.startswith("gemmd_up") and scraped or line.startswith("#"):
            continue
        name, labels, _ = re.fullmatch(r"(\w+){(.*)} (\S+)", line).groups()
        values = f"0+1x{MINUTES}" if re.search("_(total|bucket|sum|count)$", name) else f"1x{MINUTES}"
        for gpu in "01":
            its = re.sub(r'gpu="[^"]*",uuid="[^"]*"', f'gpu="{gpu}",uuid="GPU-{gpu}"', labels).replace("gemmd.sock", f"{gpu}.sock")
            series[f'{name}{{instance="h:{gpu if scraped else 9100}",{its}}}'] = values
    if scraped:
        series |= {f'up{{instance="h:{gpu}",job="gemmd"}}': f"1x{MINUTES}" for gpu in "01"}
    wanted = {f"(count({e}) > bool 0) or vector(0)": 1 for e in expressions().values()}
    counts = {f'count({e})': 2 for n, e in expressions().items() if n.startswith("GPUs ") or n == "gpu"}
    check_by_promtool(folder, series, {**wanted, **counts, "count(gemmd_keys)": 2})


# ---- what Grafana demands of the file --------------------------------------------------------------------------------

def test_panels_fill_the_grid_without_overlap():
    taken, ids = {}, [p["id"] for p in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for p in DASHBOARD["panels"]:
        g = p["gridPos"]
        assert g["x"] + g["w"] <= 24
        for at in ((x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])):
            assert at not in taken, (p["title"], taken[at])
            taken[at] = p["title"]
    assert len(taken) == 24 * (1 + max(y for _, y in taken)), "there is a hole"


def test_each_query_asks_the_chosen_data_source():
    """A source is an object since schema 36. Grafana takes a name there for the old form, and does not find the source."""
    assert DASHBOARD["schemaVersion"] >= 36
    for part in PANELS + QUERIES:
        assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_rates_look_back_over_several_writes_of_the_text_file():
    """The file is written once a minute: Grafana's rate interval, four steps, must not be four scrapes of 15 s."""
    for p in PANELS:
        for t in p["targets"]:
            assert t["interval"] == MINUTE and "[1m]" not in t["expr"], p["title"]


def test_columns_of_tables_have_the_names_that_settings_use():
    for p in (p for p in PANELS if p["type"] == "table"):
        names = set(next(t["options"]["renameByName"] for t in p["transformations"] if t["id"] == "organize").values())
        assert {o["matcher"]["options"] for o in p["fieldConfig"]["overrides"]} <= names
        assert {s["displayName"] for s in p["options"]["sortBy"]} <= names
        assert all(t["format"] == "table" and t["instant"] for t in p["targets"])


def test_grafanas_model_knows_every_field():
    """Skipped without the package grafana-foundation-sdk."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    known = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(DASHBOARD)))

    def compare(a, b, at):
        if isinstance(a, dict) and isinstance(b, dict):
            for k, v in a.items():
                assert k in b, f"{at}.{k}"
                compare(v, b[k], f"{at}.{k}")
        elif isinstance(a, list) and isinstance(b, list):
            assert len(a) == len(b), at
            for i, (v, w) in enumerate(zip(a, b)):
                compare(v, w, f"{at}[{i}]")
        else:
            assert a == b, at

    compare(DASHBOARD, known, "")
