# SPDX-License-Identifier: Apache-2.0
"""gemmctl: export, import and backup."""
import json
import os
import resource
import signal
import subprocess

import msgpack
import pytest

from fake_gemmd import (ANSWER, BEST, GEMMCTL, ROOT, Refusal, ctl, ctl_json, environment,
                        rows_of)


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


def no_more_than(n):
    """What the child's files may have: past it a write fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))


def test_an_export_that_fails_leaves_the_one_before(fake, folder):
    fake.answers["list"] = rows_of(BEST * 20, page=256)
    fake.answers["status"] = {"build": "b", "device": {"name": "d"}, "bucket_scheme": "sqrt2"}
    path, link = folder / "out" / "e.json", folder / "link.json"
    path.parent.mkdir()
    ctl(fake, "export", "--to", path)
    path.chmod(0o600)
    link.symlink_to(path)
    before = path.read_text()
    result = subprocess.run([GEMMCTL, "export", "--to", path], capture_output=True, text=True,
                            env=environment(fake), restore_signals=False,
                            preexec_fn=lambda: no_more_than(4096))
    assert result.returncode == 1 and f"cannot write {path}: File too large" in result.stderr
    assert path.read_text() == before and list(path.parent.iterdir()) == [path]
    fake.answers["list"] = rows_of(BEST)
    ctl(fake, "export", "--to", link)
    assert link.is_symlink() and json.loads(path.read_text())["rows"] == BEST
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_to_what_does_not_exist_yet_stays_a_link(fake, folder):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    link, target = folder / "link.json", folder / "e.json"
    link.symlink_to(target.name)
    ctl(fake, "export", "--to", link)
    assert link.is_symlink() and json.loads(target.read_text())["rows"] == BEST
    nowhere = folder / "nowhere.json"
    nowhere.symlink_to(folder / "no" / "e.json")
    result = ctl(fake, "export", "--to", nowhere, code=1)
    assert f"cannot write {nowhere}: No such file or directory" in result.stderr
    assert nowhere.is_symlink() and not nowhere.exists()


def test_an_export_into_a_pipe_does_not_take_its_place(fake, folder):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    os.mkfifo(folder / "pipe")
    reader = subprocess.Popen(["cat", folder / "pipe"], stdout=subprocess.PIPE, text=True)
    ctl(fake, "export", "--to", folder / "pipe")
    assert json.loads(reader.communicate(timeout=30)[0])["rows"] == BEST
    assert (folder / "pipe").is_fifo()


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


def row_of_size(n, **more):
    """A row that has n bytes on the wire."""
    row = {**BEST[0], **more, "doubt": "x" * 1000}
    row["doubt"] += "x" * (n - len(msgpack.packb(row)))
    assert len(msgpack.packb(row)) == n
    return row


MOST = 65536 - 64  # of a request, but for what stands around its rows


def test_a_row_too_large_for_a_request_is_skipped_alone(fake, folder):
    """Numbers are longer on the wire than in the file, control characters shorter."""
    large = {**BEST[0], "doubt": "x" * 70000}
    numbers = {**BEST[0], "config": {"A": [1.0] * 8000}}
    small = {**BEST[0], "doubt": "\x01" * 20000}
    rows = [*BEST[:5], large, BEST[5], numbers, small, row_of_size(MOST), row_of_size(MOST + 1)]
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": rows}))
    fake.answers["import"] = lambda params: {"imported": len(params["rows"]), "skipped": []}
    result = ctl_json(fake, "import", folder / "e.json")
    assert [s["row"] for s in result["skipped"]] == [5, 7, 10]
    assert result["imported"] == 8
    assert all("bytes, and gemmd takes" in s["message"] for s in result["skipped"])
    sent = [r for p in fake.params_of("import") for r in p["rows"]]
    assert sent == [r for r in rows[:-1] if r not in (large, numbers)]


def test_an_import_that_fails_half_way_says_how_far_it_came(fake, folder):
    rows = [row_of_size(20000, generation=i) for i in range(6)]
    rows.insert(1, {**BEST[0], "doubt": "x" * 70000})
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": rows}))

    def take(params):
        if params["rows"][0]["generation"] > 2:
            raise Refusal("disk_full", "the disk is full")
        return {"imported": len(params["rows"]), "skipped": []}
    fake.answers["import"] = take
    said = ctl(fake, "import", folder / "e.json", code=1).stderr.splitlines()
    assert said[0] == "gemmctl: the disk is full"
    assert said[1] == ("before that, the first 4 of 7 rows were done: 3 imported, 1 skipped; of the "
                       "next 2 it is not known")
    assert said[2].startswith("row 1 skipped: ")


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
