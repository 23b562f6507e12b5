# SPDX-License-Identifier: Apache-2.0
"""Installations by `meson install` and `pip wheel` work at any place."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
ASK = """import gemmd, pathlib
from gemmd import ffi
assert gemmd.__file__.startswith({place!r}), gemmd.__file__
assert ffi.shared_library().path.startswith({place!r}), ffi.shared_library().path
with gemmd.Client(device="cpu") as client:
    print(client.get("grouped_gemm mode=forward M=64 N=64 K=64 experts=1 topk=1", budget=2).tier)"""


@pytest.fixture
def user(tmp_path):
    """A user's environment without any path into the build."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GEMMD_", "LD_LIBRARY", "PYTHON", "XDG_"))}
    tmp_path.chmod(0o700)
    for folder in ("run", "state", "cache"):
        (tmp_path / folder).mkdir(mode=0o700)
    return {**env, "GEMMD_SYSTEM": "0", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run"),
            "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=600, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def prefix_of(tmp_path):
    """BUILD installed below tmp_path, and moved: the prefix of the configuration does not exist."""
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path / "staged")
    program, = (tmp_path / "staged").rglob("bin/gemmctl")
    if program == tmp_path / "staged/usr/bin/gemmctl":
        pytest.skip("built for /usr, where the loader looks by itself")
    return pathlib.Path(shutil.move(program.parents[1], tmp_path / "moved"))


@pytest.mark.skipif(not shutil.which("meson"), reason="no meson to install with")
def test_a_moved_prefix_works(tmp_path, user):
    prefix = prefix_of(tmp_path)
    gemmctl = prefix / "bin" / "gemmctl"
    shown = run(prefix / "bin" / "gemmd", "--device", "cpu", "--print-config", env=user)
    assert f"\nrunner = {prefix}/bin/gemmd-runner " in shown
    run(gemmctl, "start", "--device", "cpu", env=user)
    try:
        package, = prefix.rglob("gemmd/ffi.py")
        env = {**user, "PYTHONPATH": str(package.parents[1])}
        assert run("/usr/bin/python3", "-c", ASK.format(place=str(prefix)), env=env) == "exact\n"
        listed = run(gemmctl, "get", "--moe", "qwen3-30b-a3b", "--tokens", "16", "--wait", "cached",
                     "--device", "cpu", env=user)
        assert "dW" in listed, "the table of models is found"
    finally:
        run(gemmctl, "stop", "--device", "cpu", env=user)
    pages = {p.name for p in (prefix / "share/doc/gemmd").iterdir()}
    links = {link for page in prefix.glob("share/doc/gemmd/*.md")
             for link in re.findall(r"\]\(([\w-]+\.md)", page.read_text())}
    assert pages >= {"NEWS.md", "operations.md", "examples"} | links


@pytest.fixture
def wheel(tmp_path):
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    probe = subprocess.run([venv / "bin/pip", "download", "-q", "--no-deps", "-d", tmp_path, "meson-python"],
                           capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"pip reaches no package index: {probe.stderr[-200:]}")
    run(venv / "bin/pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "wheels", ROOT)
    made, = (tmp_path / "wheels").iterdir()
    return venv, made


@pytest.mark.skipif(subprocess.run([sys.executable, "-c", "import ensurepip"], check=False).returncode != 0,
                    reason="this Python makes no environments (python3-venv)")
def test_a_wheel_asks_the_daemon(tmp_path, user, wheel):
    venv, made = wheel
    assert re.fullmatch(r"gemmd-[\d.]+-py3-none-linux_\w+\.whl", made.name), made.name
    run(venv / "bin/pip", "install", "-q", "--no-deps", "--no-index", made)
    place, = venv.rglob("gemmd/ffi.py")
    user["PATH"] = f"{BUILD}/client:{BUILD}/daemon:{BUILD}/runner:{user['PATH']}"
    run("gemmctl", "start", "--device", "cpu", env=user)
    try:
        assert run(venv / "bin/python", "-c", ASK.format(place=str(place.parent)), env=user, cwd=tmp_path) == "exact\n"
    finally:
        run("gemmctl", "stop", "--device", "cpu", env=user)
    assert {"Root-Is-Purelib: false", "Tag: py3-none-" + made.stem.split("-none-")[1]} <= set(
        next(venv.rglob("gemmd-*.dist-info/WHEEL")).read_text().splitlines())
