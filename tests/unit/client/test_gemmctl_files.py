# SPDX-License-Identifier: Apache-2.0
"""gemmctl: export, import and backup."""
import json
import subprocess

import pytest

from fake_gemmd import ANSWER, BEST, GEMMCTL, ROOT, ctl, ctl_json, environment, rows_of


def test_export_and_import_are_lossless(fake, folder):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b", "device": {"name": "d"}, "bucket_scheme": "sqrt2"}
    fake.answers["import"] = lambda params: {"imported": len(params["rows"]), "skipped": []}
    document = json.loads(ctl(fake, "export").stdout)
    assert document["rows"] == BEST and document["gemmd_export"] == 1
    ctl(fake, "export", "--output", folder / "e.json")
    result = ctl(fake, "import", folder / "e.json")
    assert "7 imported, 0 skipped" in result.stdout
    assert [r for p in fake.params_of("import") for r in p["rows"]] == BEST


def test_a_large_import_goes_in_chunks(fake, folder):
    rows = [{**BEST[0], "generation": i, "stamp": "x" * 150} for i in range(500)]
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": rows}))

    def take(params):
        return {"imported": len(params["rows"]) - 1,
                "skipped": [{"row": 0, "message": "the first of each chunk"}]}
    fake.answers["import"] = take
    result = ctl_json(fake, "import", folder / "e.json")
    sent = [p["rows"] for p in fake.params_of("import")]
    assert len(sent) > 3 and [r for chunk in sent for r in chunk] == rows
    first = [sum(len(c) for c in sent[:i]) for i in range(len(sent))]
    assert [s["row"] for s in result["skipped"]] == first
    assert result["imported"] == 500 - len(sent)


@pytest.mark.parametrize("text, sentence", [("{", "line 1"), ("{}", "not an export"),
                                            ('{"gemmd_export": 2, "rows": []}', "not an export")])
def test_bad_imports(fake, folder, text, sentence):
    (folder / "e.json").write_text(text)
    assert sentence in ctl(fake, "import", folder / "e.json", code=1).stderr
    assert "cannot read" in ctl(fake, "import", folder / "none.json", code=1).stderr


def test_backup_sends_a_whole_path(fake, folder):
    fake.answers["backup"] = lambda params: {"path": params["path"]}
    subprocess.run([GEMMCTL, "backup", "copy.db"], cwd=folder, check=True, env=environment(fake),
                   capture_output=True)
    assert fake.params_of("backup") == [{"path": str(folder.resolve() / "copy.db")}]


def test_a_layers_numbers_beside_a_file_of_aiters(fake):
    """Its sizes are the layer's, not those of the file's name."""
    path = ROOT / "tests" / "data" / "exchange" / "GEMM-A16W16-N=512-K=256.json"
    fake.answers["get"] = {**ANSWER, "tier": "default", "stamp": "src=1 target=portable compiler=x"}
    fake.answers["check"] = {"valid": True, "target": "portable"}
    made = ctl_json(fake, "import", "--format", "aiter", path, "--dry-run", "--tokens", 8, "--moe",
                    "experts=8,topk=2,hidden=256,inter=256")
    hint, = made["hints"]
    assert (hint["problem"]["M"], hint["problem"]["N"], hint["problem"]["K"]) == (16, 512, 256)
    assert hint["problem"]["permute_x"] and "another N or K" in made["unusable"][0]["why"]
