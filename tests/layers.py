#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom (docs/architecture.md), said aloud: fails with the offending lines."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> folders of ours that it may include
MAY = {
    "proto": {"proto"},
    "store": {"store", "proto"},
    "kernels": {"kernels", "proto"},
    "daemon/runner": {"daemon/runner", "kernels", "proto"},
    "daemon": {"daemon", "store", "kernels", "proto"},
    "client/ctl": {"client/ctl", "client/gemmd.h", "proto/std_files.h"},
    "client": {"client", "kernels", "proto"},
}
# library header -> the only folder that may include it
ONLY = {
    "sqlite3.h": "store/",
    "msgpack.h": "proto/",
    "msgpack/": "proto/",
    "uv.h": "daemon/",
    "cuda.h": "kernels/devices/",
    "nvrtc.h": "kernels/devices/",
    "nvml.h": "kernels/devices/",
}
# daemon/, from the ground up: a file may include those before it, and its own header.
# docs/architecture.md says what each layer is for.
DAEMON = """
list log notify config account lock turns poller inbox probe answer confidence barred defaults
keeper_link ledger
cache_entry ids memo groups partials cache closest tried
daemon target learn quarantine refill scheme custom precheck shortlist tiers why
session session_write session_read sessions server
call choices pending loader views leases followers
job rounds scheduler wanting ahead spread
runner_link supervisor
tuning_known elsewhere tuning_order tuning_trials tuning_blame tuning_end tuning
parts methods announce methods_ dispatch
start wiring orphans chores life main
"""
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def places():
    """Of daemon/'s files: name, or its beginning for families of files, to place."""
    return {name: i for i, name in enumerate(DAEMON.split())}


def place_of(path, known):
    name = pathlib.PurePath(path).stem
    family = next((f for f in ("ledger", "methods_") if name.startswith(f)), name)
    return known.get(family)


def faults_of_daemon():
    """Includes of daemon/ (not of the runner) against its order, and files that are not in it."""
    known = places()
    for file in sorted((ROOT / "daemon").glob("*.[ch]")):
        path = file.relative_to(ROOT).as_posix()
        own = place_of(path, known)
        if own is None:
            yield f"{path}: it has no place in the order of daemon/ (DAEMON in tests/layers.py)"
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match.group(2).startswith("daemon/"):
                other = place_of(match.group(2), known)
                if other is None or other > own:
                    yield f"{path}:{number}: {path} may not include {match.group(2)}: it is above"


def folder_of(path):
    return max((f for f in MAY if path.startswith(f + "/")), key=len)


def faults():
    for file in sorted(p for f in ("proto", "store", "kernels", "daemon", "client")
                       for p in (ROOT / f).rglob("*.[ch]")):
        path = file.relative_to(ROOT).as_posix()
        folder = folder_of(path)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            kind, name = match.groups()
            where = f"{path}:{number}: {folder}/ may not include {name}"
            if kind == '"' and "/" in name:
                target = max((f for f in MAY if name.startswith(f + "/")), key=len, default=None)
                if target and not any(name == m or target == m for m in MAY[folder]):
                    yield where
            for header, only in ONLY.items():
                if (name == header or (header.endswith("/") and name.startswith(header))) and (
                        not path.startswith(only) or (header == "uv.h" and folder == "daemon/runner")):
                    yield where


if __name__ == "__main__":
    found = list(faults()) + list(faults_of_daemon())
    print("\n".join(found) or "layers: every include goes the way docs/architecture.md says")
    sys.exit(1 if found else 0)
