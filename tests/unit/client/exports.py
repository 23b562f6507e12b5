#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exports.py LIBGEMMD.SO LIBGEMMD.A GEMMD.H: both libraries define the declarations of gemmd.h, and
export no other name."""
import re
import subprocess
import sys

shared, static, header = sys.argv[1:4]
declared = set(re.findall(r"\b(gemmd_\w+)\(", open(header).read()))
faults = []
for library, option in ((shared, "-D"), (static, "-g")):
    text = subprocess.run(["nm", option, "--defined-only", library], capture_output=True, text=True,
                          check=True).stdout
    shown = {line.split()[2].split("@")[0] for line in text.splitlines()
             if len(line.split()) == 3 and line.split()[1] in "TDBRVW"}
    faults += [f"{library} does not define {name}" for name in sorted(declared - shown)]
    faults += [f"{library} shows {name}" for name in sorted(shown - declared)]
print("\n".join(faults) or f"{len(declared)} functions, nothing else")
sys.exit(1 if faults else 0)
