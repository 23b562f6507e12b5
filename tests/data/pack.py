#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recorded landscapes as one archive, tests/data/landscapes.tar.xz, and back.

  pack.py --unpack FOLDER    FOLDER/landscapes, FOLDER/landscapes_fresh, ... (meson does so at every setup)
  pack.py FOLDER             writes the archive from the folders landscapes* in FOLDER

Unpacking removes landscapes of FOLDER that the archive lacks. The same files make the same archive.
"""
import argparse
import hashlib
import lzma
import pathlib
import shutil
import tarfile

ARCHIVE = pathlib.Path(__file__).resolve().parent / "landscapes.tar.xz"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20, "lc": 4,
            "lp": 0}]


def unpack(folder):
    """Unpacks the archive into the folder, unless this archive was unpacked there before."""
    mark = folder / "landscapes.sha256"
    digest = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == digest:
        return
    mark.unlink(missing_ok=True)
    for old in folder.glob("landscapes*"):
        shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, [m for m in archive if m.isreg() and m.name.startswith("landscapes")
                                    and ".." not in m.name])
    mark.write_text(digest)


def anonymous(member):
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def pack(folder):
    files = sorted(p.relative_to(folder) for p in folder.glob("landscapes*/*.jsonl"))
    with lzma.open(ARCHIVE, "wb", filters=FILTERS) as out, tarfile.open(fileobj=out, mode="w") as archive:
        for name in files:
            archive.add(folder / name, str(name), filter=anonymous)
    print(f"{len(files)} landscapes, {ARCHIVE.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unpack", action="store_true")
    parser.add_argument("folder", type=pathlib.Path)
    o = parser.parse_args()
    (unpack if o.unpack else pack)(o.folder)
