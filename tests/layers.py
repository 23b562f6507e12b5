#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the include rules of docs/architecture.md. Fails with the offending lines."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> our folders and headers that the folder may include besides itself
MAY = {
    "proto": set(),
    "store": {"proto"},
    "kernels": {"proto"},
    "runner/base": {"kernels", "proto"},
    "runner/compile": {"runner/base", "kernels", "proto"},
    "runner/strategy": {"kernels", "proto"},
    "runner/landscape": {"runner/base", "runner/compile", "kernels", "proto"},
    "runner/precompile": {"runner/base", "runner/compile", "runner/strategy", "kernels", "proto"},
    "runner": {"runner/base", "runner/compile", "runner/strategy", "runner/landscape", "runner/precompile",
               "kernels", "proto"},
    "daemon/base": {"proto"},
    "daemon/cache": {"kernels", "proto"},
    "daemon/ledger": {"daemon/base", "store", "kernels", "proto"},
    "daemon/session": {"daemon/base", "proto"},
    "daemon/answers": {"daemon/daemon.h", "daemon/base", "daemon/cache", "daemon/ledger", "kernels",
                       "proto"},
    "daemon/tuning": {"daemon/daemon.h", "daemon/base", "daemon/cache", "daemon/session",
                      "daemon/answers", "store", "kernels", "proto"},
    "daemon/methods": {"daemon/daemon.h", "daemon/base", "daemon/cache", "daemon/ledger",
                       "daemon/session", "daemon/answers", "daemon/tuning", "store", "kernels",
                       "proto"},
    "daemon": {"daemon/base", "daemon/cache", "daemon/ledger", "daemon/answers", "daemon/tuning",
               "daemon/methods", "kernels", "proto"},
    "fleet": {"store", "proto"},
    "client/ctl": {"client/gemmd.h", "proto"},
    "client": {"kernels", "proto"},
}
# library header -> the only folder, or folders, that may include the header
ONLY = {
    "sqlite3.h": "store/",
    "msgpack.h": "proto/",
    "msgpack/": "proto/",
    "uv.h": ("daemon/", "fleet/"),
    "libpq-fe.h": "fleet/",
    "cuda.h": "kernels/devices/",
    "nvrtc.h": "kernels/devices/",
    "nvml.h": "kernels/devices/",
}
# Inside a folder of gemmd, from the ground up: a file may include the files before, and its own header.
# docs/architecture.md describes each folder. All files of the ledger may include each other.
ORDER = {
    "daemon/base": "list log notify address config account tally latency lock turns poller http probe",
    "daemon/cache": "answer confidence quarantine_set defaults entry memo hash_table cache holdings partials"
                    " closest tried",
    "daemon/session": "session read sessions server",
    "daemon/answers": "target learn quarantine restore scheme custom portfolio tiers",
    "daemon/tuning": "job runner_link tuning scheduler rounds waiters precompile job_begin job_lease offers pauses"
                     " supervisor runner_order blame confirm job_end",
    "daemon/methods": "call pending loader generations leases daemon_parts methods announce fleet_pins ask"
                      " acquire admin get kernels record list get_many pause promote put space status metrics why served dispatch",
    "daemon": "daemon life orphans chores exporter remeasure restore start wiring main",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def includes(file):
    """(line number, '"' or '<', included name) of a file."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, *match.groups()


def faults_of_order():
    """Finds includes that break the order inside a folder, and files that the order does not name."""
    for folder, names in ORDER.items():
        known = {name: i for i, name in enumerate(names.split())}
        for file in sorted((ROOT / folder).glob("*.[ch]")):
            path = file.relative_to(ROOT).as_posix()
            own = known.get(file.stem)
            if own is None:
                yield f"{path}: it has no place in the order of {folder}/ (ORDER in tests/layers.py)"
                continue
            for number, kind, name in includes(file):
                target = pathlib.PurePosixPath(name)
                if kind == '"' and str(target.parent) == folder and known.get(target.stem, own + 1) > own:
                    yield f"{path}:{number}: {path} may not include {name}: it is above"


def folder_of(path):
    return max((f for f in MAY if path.startswith(f + "/")), key=len)


def faults():
    for file in sorted(p for f in ("proto", "store", "kernels", "runner", "daemon", "fleet", "client")
                       for p in (ROOT / f).rglob("*.[ch]")):
        path = file.relative_to(ROOT).as_posix()
        folder = folder_of(path)
        for number, kind, name in includes(file):
            where = f"{path}:{number}: {folder}/ may not include {name}"
            if kind == '"' and "/" in name:
                target = max((f for f in MAY if name.startswith(f + "/")), key=len, default=None)
                if target and target != folder and not MAY[folder] & {name, target}:
                    yield where
            for header, only in ONLY.items():
                if not path.startswith(only) and (
                        name == header or (header.endswith("/") and name.startswith(header))):
                    yield where


if __name__ == "__main__":
    found = list(faults()) + list(faults_of_order())
    print("\n".join(found) or "layers: every include goes the way docs/architecture.md says")
    sys.exit(1 if found else 0)
