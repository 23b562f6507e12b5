# SPDX-License-Identifier: Apache-2.0
"""The installation has every file of the package, and no other file. The wheel has the version of the build."""
import json
import pathlib
import re

import pytest

from conftest import BUILD, PYTHON, ROOT


@pytest.mark.no_library
def test_every_file_of_the_package_is_installed():
    plan = json.loads((BUILD / "meson-info" / "intro-install_plan.json").read_text())
    installed = {pathlib.Path(p).resolve() for p, to in plan["python"].items()
                 if "gemmd" in to["destination"]}
    there = {p.resolve() for p in (PYTHON / "gemmd").rglob("*")
             if p.is_file() and "__pycache__" not in p.parts}
    assert installed == there


@pytest.mark.no_library
def test_the_wheel_and_the_build_are_of_one_version():
    """pyproject.toml takes meson's version; gemmd/ffi.py binds only functions that client/gemmd.h declares."""
    project = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project
    header = (ROOT / "client" / "gemmd.h").read_text()
    from gemmd import ffi
    public = set(re.findall(r"GEMMD_API [^;]*?\b(gemmd_\w+)\(", header))
    assert set(ffi._FUNCTIONS) <= public
