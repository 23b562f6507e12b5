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
    "client/ctl": {"client/ctl", "client/gemmd.h"},
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
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


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
    found = list(faults())
    print("\n".join(found) or "layers: every include goes the way docs/architecture.md says")
    sys.exit(1 if found else 0)
