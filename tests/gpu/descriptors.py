#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists compiled Hopper kernels that refill the registers of wgmma's descriptors for each wgmma.

    build/tests/gpu/hopper_bench --compile DIR [--tile ...] [--kind ...]
    descriptors.py DIR        a line for each kernel with a wgmma, refilling kernels first
    descriptors.py --check    finds the pattern in a few lines of SASS; in CI.

The compiler refills when it does not see that a warp's lanes are together (mainloop() in
hopper/mainloop.cu). A small change anywhere before the multiplication can cause this, and cost 6 %.
wgmma takes descriptors from uniform registers; an R2UR shortly before copies them from a lane's
registers. Needs cuobjdump, of the CUDA Toolkit; exit 77 without.
"""
import pathlib
import re
import shutil
import subprocess
import sys

NEAR = 12  # number of instructions before a wgmma that are searched
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,6}\*/\s+(.*?);", re.M)
SAMPLE = """
        /*0010*/                   UIADD3 UR8, UR16, 0x2, URZ ;
        /*0020*/                   HGMMA.64x48x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0030*/                   R2UR UR8, R20 ;
        /*0040*/                   R2UR UR9, R21 ;
        /*0050*/                   HGMMA.64x48x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
"""


def count(sass):
    """(wgmmas, R2URs shortly before a wgmma)"""
    instructions = INSTRUCTION.findall(sass)
    wgmmas = [i for i, text in enumerate(instructions) if "HGMMA" in text]
    near = {j for i in wgmmas for j in range(max(0, i - NEAR), i) if "R2UR" in instructions[j]}
    return len(wgmmas), len(near)


def check():
    found = count(SAMPLE), count(SAMPLE.replace("R2UR", "UMOV"))
    if found != ((2, 2), (2, 0)):
        raise SystemExit(f"descriptors.py --check: counted {found}")


def main(folder):
    tool = shutil.which("cuobjdump")
    if not tool:
        print("SKIP: there is no cuobjdump in PATH (it comes with the CUDA Toolkit)")
        return 77
    cubins = sorted(pathlib.Path(folder).glob("*.cubin"))
    if not cubins:
        raise SystemExit(f"descriptors.py: there is no .cubin in {folder}: hopper_bench --compile writes some")
    rows = []
    for cubin in cubins:
        sass = subprocess.run([tool, "-sass", cubin], check=True, capture_output=True, text=True).stdout
        wgmmas, near = count(sass)
        if wgmmas:
            rows.append((near, wgmmas, cubin.name))
    rows.sort(reverse=True)
    print(f"{'R2UR':>5} {'wgmma':>6}  kernel")
    for near, wgmmas, name in rows:
        print(f"{near:5} {wgmmas:6}  {name}")
    some = sum(near > 0 for near, _, _ in rows)
    print(f"{some} of {len(rows)} kernels fill descriptors anew for each wgmma")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.exit(check() if sys.argv[1] == "--check" else main(sys.argv[1]))
