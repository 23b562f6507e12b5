# SPDX-License-Identifier: Apache-2.0
"""Every command of the documents for users runs as for a reader: all blocks of a page in one shell.

    ```sh            runs
    ```python        runs with the shell's variables; ```python torch where PyTorch is installed
    ```sh build, ```sh gpu, ```sh root    run elsewhere: by CI itself, on a GPU, on a host of your own

Other blocks show something and hold no command.
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
PATIENCE = 10 if "sanitize" in os.environ.get("GEMMD_BUILD_KIND", "") else 1
PAGES = ["README.md", "docs/training-job.md", "docs/operations.md", "docs/tuning-by-hand.md"]
RUNS, ELSEWHERE = {"sh", "python", "python torch"}, {"sh build", "sh gpu", "sh root"}
COMMANDS = re.compile(r"^\s*(?:\$ )?(gemmctl|gemmd|scripts/\w+|meson|sudo|systemctl) ", re.M)


def blocks(page):
    """(kind, text) of each block between fences."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def script_of(page, folder):
    parts = []
    for i, (kind, text) in enumerate(blocks(page)):
        if kind == "sh":
            parts.append(text)
        elif kind == "python" or kind == "python torch" and importlib.util.find_spec("torch"):
            program = folder / f"block{i}.py"
            program.write_text(text)
            parts.append(f"{sys.executable} {program}\n")
    return "".join(parts)


@pytest.fixture
def reader(tmp_path):
    """A user's environment: programs on PATH, folders of their own."""
    env = {**os.environ, "HOME": str(tmp_path), "GEMMD_SYSTEM": "0", "PYTHONPATH": str(ROOT / "python"),
           "GEMMD_LIBRARY": str(BUILD / "client" / "libgemmd.so"), "XDG_RUNTIME_DIR": str(tmp_path / "run"),
           "GEMMD_MODELS": str(ROOT / "python" / "gemmd" / "models.csv"),
           "PATH": ":".join([*(str(BUILD / p) for p in ("client", "daemon", "runner")), os.environ["PATH"]])}
    for name in ("GEMMD_SOCKET", "GEMMD_DEVICE", "GEMMD_CACHE_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        env.pop(name, None)
    tmp_path.chmod(0o700)
    (tmp_path / "run").mkdir(mode=0o700)
    yield env
    subprocess.run(["gemmctl", "stop", "--device", "cpu"], env=env, capture_output=True, check=False)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_runs(page, reader, tmp_path):
    script = script_of(page, tmp_path)
    assert script, f"{page} has no block that runs here"
    done = subprocess.run(["sh", "-exc", script], env=reader, cwd=ROOT if page == "README.md" else tmp_path,
                          capture_output=True, text=True, timeout=120 * PATIENCE)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides_from_this_test(page):
    text = re.sub(r"^```[^\n]*\n.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    indented = [line for line in text.splitlines() if re.match(r"    \S", line) and COMMANDS.match(line)]
    assert not indented, f"{page}: put these into a block between fences: {indented}"
    for kind, body in blocks(page):
        assert kind in RUNS | ELSEWHERE | {"text"} or not COMMANDS.search(body), f"{page}: a block of kind '{kind}' has a command"


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
