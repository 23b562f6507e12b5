# SPDX-License-Identifier: Apache-2.0
"""Results that travel: restore, bundles, lock files."""
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import sqlite3
import subprocess
import tarfile

import pytest

from conftest import GEMMCTL, GEMMD, gemm
from test_classes import device, odd_config


def problem(n):
    return {"op": "custom:travel", "n": n}


def restore(d, *args, **more):
    return d.ctl("restore", *args, "--database", d.database, env={"GEMMD_DAEMON": str(GEMMD)}, **more)


def beside(database):
    """Names of the files beside a database, without the database's name."""
    return sorted(p.name.removeprefix(database.name) for p in database.parent.glob(database.name + "?*"))


# ---- restore -----------------------------------------------------------------------------------


def test_restore_puts_a_backup_in_place_and_keeps_the_replaced_file(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    with d.connect() as c:
        c.call("put", problem=problem(1), config={"a": 1}, time_us=1)
        c.call("backup", path=str(copy))
        c.call("put", problem=problem(1), config={"a": 2}, time_us=1)
        # the rows of an unfinished log belong to the replaced file, not to the new one
        d.kill()
    before = d.database.stat()
    done = json.loads(restore(d, copy, "--json").stdout)
    assert done["database"] == str(d.database)
    kept = done["replaced"].removeprefix(str(d.database))
    assert kept.startswith(".replaced-") and {kept, kept + "-wal", ".lock"} <= set(beside(d.database))
    assert d.database.stat().st_mode == before.st_mode and d.database.stat().st_uid == before.st_uid
    d.start()
    with d.connect() as c:
        assert c.call("get", problem=problem(1))["config"] == {"a": 1}
    d.stop()
    restore(d, done["replaced"])
    d.start()
    with d.connect() as c:
        assert c.call("get", problem=problem(1))["config"] == {"a": 2}


def test_restore_refuses_while_a_program_has_the_database_open(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    d.call("backup", path=str(copy))
    before = d.database.stat().st_ino
    refused = restore(d, copy, check=False)
    assert refused.returncode == 75 and f"in use by pid {d.process.pid} (gemmd)" in refused.stderr
    d.stop()
    with contextlib.closing(sqlite3.connect(d.database)) as reader:
        reader.execute("SELECT count(*) FROM best").fetchall()
        refused = restore(d, copy, check=False)
        assert refused.returncode == 75 and f"in use by pid {os.getpid()} (" in refused.stderr
    assert d.database.stat().st_ino == before and not [n for n in beside(d.database) if "repl" in n]


def test_restore_refuses_files_that_are_no_copy_of_a_database(daemon, folder):
    d, copy, other = daemon(), folder / "copy.db", folder / "other.db"
    with d.connect() as c:
        for n in range(200):
            c.send("put", problem=problem(n), config={"a": n}, time_us=1)
        c.wait(c.next_id)
    d.call("backup", path=str(copy))
    d.stop()
    before = d.database.read_bytes()

    def says(path, text):
        refused = restore(d, path, check=False)
        assert refused.returncode == 1 and text in refused.stderr, refused.stderr
        assert d.database.read_bytes() == before and not [n for n in beside(d.database) if "repl" in n]

    says(folder / "none.db", "No such file")
    says(d.database, "is the database itself")
    other.write_text("no database " * 100)
    says(other, "not a database")
    other.write_bytes(b"")
    says(other, "has no tables")
    damaged = bytearray(copy.read_bytes())
    damaged[8192:8192 + 2048] = bytes(2048)
    other.write_bytes(damaged)
    says(other, "damaged")
    other.unlink()
    with sqlite3.connect(other) as newer:
        newer.execute("PRAGMA application_id = 0x67656d6d")
        newer.execute("PRAGMA user_version = 99")
        newer.execute("CREATE TABLE t(x)")
    says(other, "written by a newer gemmd")


def test_restore_makes_a_missing_database(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    d.call("put", problem=problem(1), config={"a": 1}, time_us=1)
    d.call("backup", path=str(copy))
    d.stop()
    for part in ("", "-wal", "-shm"):
        d.database.with_name(d.database.name + part).unlink()
    assert json.loads(restore(d, copy, "--json").stdout)["replaced"] is None
    assert d.database.stat().st_mode & 0o777 == 0o600
    d.start()
    assert d.call("get", problem=problem(1))["config"] == {"a": 1}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_only_the_owner_and_root_restore_and_root_keeps_the_owner(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    d.call("put", problem=problem(1), config={"a": 1}, time_us=1)
    d.call("backup", path=str(copy))
    d.stop()
    theirs = folder / "theirs"
    theirs.mkdir(mode=0o700)
    shutil.chown(theirs, "nobody")
    folder.chmod(0o755)
    copy.chmod(0o644)
    d.database = theirs / "cache.db"
    restore(d, copy)
    assert {p.stat().st_uid for p in theirs.iterdir()} == {theirs.stat().st_uid}
    d.database = folder / "cache.db"
    refused = subprocess.run([GEMMD, "--restore", copy, "--database", d.database], capture_output=True, text=True,
                             user="nobody", group="nogroup", extra_groups=[])
    assert refused.returncode == 1 and "only the owner of its folder" in refused.stderr, refused.stderr


# ---- bundles -----------------------------------------------------------------------------------


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


def key_pair(folder, name):
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    openssl("genpkey", "-algorithm", "ed25519", "-out", private)
    private.chmod(0o600)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    return private, public


@pytest.fixture
def keys(folder):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make keys with")
    private, public = key_pair(folder, "signer")
    said = subprocess.run([GEMMCTL, "bundle", "verify", "/dev/null", "--public-key", public], capture_output=True,
                          text=True)
    if "libcrypto" in said.stderr:
        pytest.skip("gemmctl was built without libcrypto")
    return private, public


def move(d, name):
    """Stops the daemon. Its next start plays another host, with a database and a cache of its own."""
    d.stop()
    d.database, d.cache = d.folder / f"{name}.db", d.folder / f"{name}-cache"


def test_a_bundle_answers_on_another_host_without_a_tuning(daemon, folder, keys):
    private, public = keys
    file = folder / "results.bundle"
    a = daemon()
    with a.connect() as c:
        config = odd_config(c, gemm())
        tuned = c.call("pin", problem=gemm(), config=config)
        c.call("put", problem=problem(1), config={"a": 1}, time_us=1)
    a.ctl("bundle", "create", file, "--key", private, "--modules", "--note", "of host A")
    shown = json.loads(subprocess.run([GEMMCTL, "bundle", "verify", file, "--public-key", public, "--json"],
                                      capture_output=True, check=True).stdout)
    assert (shown["generation"], shown["rows"], shown["modules"], shown["note"]) == (2, 2, 1, "of host A")
    assert shown["stamps"] == ["", tuned["stamp"]] or shown["stamps"] == [tuned["stamp"], ""]
    move(a, "b")
    a.device = device(folder, "other", power_limit_w=300)
    b = a.start()
    said = b.ctl("bundle", "install", file, "--public-key", public, "--trust")
    assert said.stdout == "2 imported, 0 skipped, 1 modules\n", said
    with b.connect() as c:
        answer = c.call("get", problem=gemm())
        assert (answer["tier"], answer["source"], answer["config"]) == ("exact", "trusted", config)
        assert "not measured here" in answer["note"] and c.call("status")["runner"]["starts"] == 0
        assert not c.list("trials", key=answer["key"]), "nothing was measured"
        image = c.call("module", id=tuned["module"])["data"]
    [module] = (b.cache / "modules").iterdir()
    assert module.stem == tuned["module"] and module.read_bytes() == image
    with tarfile.open(file) as archive:  # any tar reads the file
        assert archive.getnames() == ["manifest.json", "manifest.sig", "rows.json", "trials.json",
                                      f"modules/{tuned['module']}"]
        assert {t["key"] for t in json.load(archive.extractfile("trials.json"))} >= {tuned["key"]}


def test_a_bundle_whose_kernels_cannot_be_written_is_installed(daemon, folder, keys):
    private, public = keys
    file = folder / "results.bundle"
    d = daemon()
    d.call("get", problem=gemm(), budget=2)
    d.ctl("bundle", "create", file, "--key", private, "--modules")
    move(d, "b")
    d.start()
    install = ["bundle", "install", file, "--public-key", public, "--trust"]
    modules = d.cache / "modules"
    modules.touch()
    said = d.ctl(*install, check=False)
    assert (said.returncode, said.stdout) == (1, "1 imported, 0 skipped\n") and "cannot write" in said.stderr
    assert [e["kind"] for e in d.call("list", what="events")["rows"]].count("bundle") == 1
    shown = d.ctl(*install, "--json", check=False)
    document = json.loads(shown.stdout)
    assert document["imported"] == 1 and "cannot write" in document["error"]["message"] and shown.returncode == 1
    modules.unlink()
    assert d.ctl(*install).stdout == "1 imported, 0 skipped, 1 modules\n"


@pytest.mark.parametrize("action, option, takes", [
    *(("install", option, "create") for option in ("--where=op=gemm", "--sort=key", "--top=1", "--offset=1", "--key=k",
                                                   "--modules", "--note=n")),
    *(("verify", option, "install") for option in ("--trust", "--force")),
    ("create", "--public-key=k", "verify,install"), ("create", "--force", "install")])
def test_an_option_of_another_action_of_bundle_is_refused(folder, keys, action, option, takes):
    key = ["--key", keys[0]] if action == "create" else ["--public-key", keys[1]]
    said = subprocess.run([GEMMCTL, "bundle", action, folder / "x", *key, option, "--socket", folder / "none"],
                          capture_output=True, text=True)
    assert said.returncode == 2 and f"with bundle {takes}, not with {action}" in said.stderr, said


def test_an_older_bundle_of_a_signer_is_installed_only_by_force(daemon, folder, keys):
    private, public = keys
    other = key_pair(folder, "other")
    d = daemon()
    files = [folder / f"{i}.bundle" for i in range(3)]
    for i in range(2):
        d.call("put", problem=problem(i), config={"a": i}, time_us=1)
        d.ctl("bundle", "create", files[i], "--key", private)
    d.ctl("bundle", "create", files[2], "--key", other[0])
    move(d, "b")
    d.start()
    d.ctl("bundle", "install", files[1], "--public-key", public, "--trust")
    said = d.ctl("bundle", "install", files[0], "--public-key", public, "--trust", check=False)
    assert said.returncode == 1 and "generation 1, and generation 2 of the same signer is installed" in said.stderr
    d.stop()
    d.start()
    for file, key, more in ((files[0], public, ["--force"]), (files[1], public, []), (files[2], other[1], [])):
        # an installed bundle has nothing new
        said = d.ctl("bundle", "install", file, "--public-key", key, "--trust", *more, check=False)
        assert "generation" not in said.stderr, said.stderr


def test_a_hosts_own_faster_row_of_a_custom_op_stays(daemon, folder, keys):
    private, public = keys
    bundle, export = folder / "a.bundle", folder / "a.json"
    d = daemon()
    for i in range(3):
        d.call("record", problem=problem(i), trials=[{"config": {"a": i}, "status": "ok", "time_us": 5.0}])
        d.call("put", problem=problem(i), config={"a": i}, time_us=5)
    d.ctl("bundle", "create", bundle, "--key", private)
    export.write_text(d.ctl("export").stdout)
    for name, words in (("import", ["import", export]), ("bundle", ["bundle", "install", bundle, "--public-key", public]),
                        ("trust", ["import", "--trust", export])):
        move(d, name)
        d.start()
        d.call("put", problem=problem(1), config={"own": 1}, time_us=1)
        d.call("put", problem=problem(2), config={"own": 1}, time_us=9)
        said = d.ctl(*words)
        assert said.stdout == "2 imported, 1 skipped, with 3 trials\n" and "has a faster row" in said.stderr, said
        configs = [d.call("get", problem=problem(i), wait="cached")["config"] for i in range(3)]
        assert configs == [{"a": 0}, {"own": 1}, {"a": 2}]


def test_of_the_rows_of_a_custom_op_in_one_import_the_fastest_answers(daemon):
    d = daemon()
    d.call("put", problem=problem(0), config={"a": 9}, time_us=100)
    row = d.call("list", what="best")["rows"][0]
    rows = [{**row, "config": {"a": i}, "time_us": us} for i, us in enumerate((5.0, None, 3.0, 9.0))]
    skipped = d.call("import", rows=rows)["skipped"]
    assert [s["row"] for s in skipped] == [1, 3] and all("has a faster row" in s["message"] for s in skipped), skipped
    assert d.call("get", problem=problem(0), wait="cached")["config"] == {"a": 2}


def forge(members, private, path, change):
    """Packs files as gemmctl does, with a changed manifest and a right signature."""
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    message, signature = path.with_suffix(".txt"), path.with_suffix(".sig")
    message.write_bytes(members["manifest.json"])
    openssl("pkeyutl", "-sign", "-rawin", "-inkey", private, "-in", message, "-out", signature)
    members["manifest.sig"] = signature.read_bytes()
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        size = archive.offset
    os.truncate(path, size + 1024)


def test_a_changed_bundle_is_refused(daemon, folder, keys):
    private, public = keys
    file, bad = folder / "results.bundle", folder / "bad.bundle"
    d = daemon()
    d.call("get", problem=gemm(), budget=2)
    d.ctl("bundle", "create", file, "--key", private, "--modules")
    d.stop()
    good = file.read_bytes()

    def verify(path=bad, key=public):
        return subprocess.run([GEMMCTL, "bundle", "verify", path, "--public-key", key], capture_output=True, text=True)

    def says(text, **more):
        said = verify(**more)
        assert said.returncode == 1 and text in said.stderr and said.stdout == "", said

    def members():
        with tarfile.open(file) as archive:
            return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}

    assert verify(file).returncode == 0
    draw = random.Random(52)
    for _ in range(300):
        flipped, at = bytearray(good), draw.randrange(len(good))
        flipped[at] ^= 1 << draw.randrange(8)
        bad.write_bytes(flipped)
        assert verify().returncode == 1, at
    for size in (0, 100, 512, 5000, len(good) - 512, len(good) - 1):
        bad.write_bytes(good[:size])
        assert verify().returncode == 1, size
    bad.write_bytes(good + b"\0")
    says("damaged")
    bad.write_bytes(file.read_bytes())
    says("is not that of the key", key=key_pair(folder, "stranger")[1])
    says("is no public key of Ed25519", key=private)
    says("cannot read the key", key=folder / "none")

    forge(members(), private, bad, lambda m: None)
    assert verify().returncode == 0, "the forger packs as gemmctl does"
    forge(members(), private, bad, lambda m: m.update(gemmd_bundle=2))
    says("of version 2")
    forge(members(), private, bad, lambda m: m["files"].pop())
    says("that the manifest lacks")
    more = members()
    name = next(n for n in more if n.startswith("modules/"))
    more[name] += b"x"
    forge(more, private, bad, lambda m: m["files"][-1].update(
        size=len(more[name]), sha256=hashlib.sha256(more[name]).hexdigest()))
    says("has the content of module")


def test_only_the_owner_of_a_private_key_signs(daemon, folder, keys):
    d = daemon()
    d.call("put", problem=problem(1), config={"a": 1}, time_us=1)
    keys[0].chmod(0o644)
    said = d.ctl("bundle", "create", folder / "x", "--key", keys[0], check=False)
    assert said.returncode == 1 and "other users may read" in said.stderr and not (folder / "x").exists()


# ---- lock files --------------------------------------------------------------------------------


def words(n):
    return ["--mode", "forward", "--m", 256, "--n", n, "--k", 256, "--experts", 4, "--topk", 2]


def test_a_lock_file_lists_the_answers_of_a_job(daemon, folder):
    d, path = daemon(), folder / "gemmd.lock"
    said = d.ctl("lock", *words("256,512"), "--to", path, check=False)
    assert said.returncode == 1 and "2 of 2 problems have no tuned, pinned or trusted answer" in said.stderr
    assert not path.exists()
    answers = [d.call("get", problem=gemm(n=n), budget=2) for n in (256, 512)]
    rows = d.ctl_json("lock", *words("256,512,256"))["rows"]
    assert [(r["key"], r["module"], r["config"]) for r in rows] == \
           [(a["key"], a["module"], a["config"]) for a in answers]
    d.ctl("lock", *words("256,512"), "--to", path)
    d.call("evict", key=answers[0]["key"])
    [row] = json.loads(d.ctl("get", *words(256), "--json", env={"GEMMD_LOCK": str(path)}).stdout)
    assert (row["tier"], row["source"], row["config"]) == ("exact", "locked", answers[0]["config"])
    assert (row["key"], row["module"]) == (answers[0]["key"], answers[0]["module"])
    assert d.call("get", problem=gemm(), wait="cached")["tier"] != "exact", "the daemon has forgotten the key"


def test_a_changed_line_of_a_lock_file_is_an_error_with_its_number(daemon, folder):
    d, path, bad = daemon(), folder / "gemmd.lock", folder / "bad.lock"
    for n in (256, 512):
        d.call("get", problem=gemm(n=n), budget=2)
    d.ctl("lock", *words("256,512"), "--to", path)
    lines = path.read_text().splitlines()
    assert len(lines) == 5 and lines[1].startswith("# ")

    def says(text, changed, n=256):
        bad.write_bytes(changed if isinstance(changed, bytes) else "\n".join(changed).encode())
        said = d.ctl("get", *words(n), check=False, env={"GEMMD_LOCK": str(bad)})
        assert said.returncode != 0 and text in said.stderr, (text, said.stderr)
        assert said.stdout == ""

    draw, problems = random.Random(52), 0
    for _ in range(40):
        at = draw.randrange(2, 5)
        changed = bytearray(lines[at].encode())
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(7)
        if b"\n" in changed or b"\r" in changed or changed[:1] == b"#":
            continue
        says(f"{bad}: line {at + 1}: ", b"\n".join([*map(str.encode, lines[:at]), changed,
                                                    *map(str.encode, lines[at + 1:])]))
        problems += 1
    assert problems > 30
    says("line 3: the line was changed or cut short", [*lines[:2], lines[2][:-9], *lines[3:]])
    says("line 6: line 4 has the same problem", [*lines, lines[3]])
    says("the first line is not", [*lines[:2], *lines[3:]])
    says("is empty", [])
    says("has a zero byte", path.read_bytes() + b"\0")
    says("has no line for grouped_gemm", [*lines[:3], lines[4]])
    bad.write_text("\n".join(["", "# mine", *lines[:3], lines[4], ""]))
    assert "locked" in d.ctl("get", *words(512), env={"GEMMD_LOCK": str(bad)}).stdout
    said = d.ctl("get", *words(256), check=False, env={"GEMMD_LOCK": str(folder / "none")})
    assert said.returncode == 1 and "cannot be read: No such file" in said.stderr
    d.stop()
    d.device = device(folder, "other", sm_count=8)
    d.start()
    said = d.ctl("get", *words(256), check=False, env={"GEMMD_LOCK": str(path)})
    assert said.returncode == 1 and "its kernels would differ" in said.stderr
