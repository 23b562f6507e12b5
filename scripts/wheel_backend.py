# SPDX-License-Identifier: Apache-2.0
"""The backend of pyproject.toml: meson-python's, with another tag. The wheel has libgemmd.so and no extension
module, so a wheel fits every Python of its platform: py3-none-<platform>."""
import pathlib
import subprocess
import sys

from mesonpy import (build_editable, build_sdist, get_requires_for_build_editable,  # noqa: F401
                     get_requires_for_build_sdist, get_requires_for_build_wheel)
from mesonpy import build_wheel as build_tagged_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = build_tagged_wheel(wheel_directory, config_settings, metadata_directory)
    tags = [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", "py3", "--abi-tag", "none",
            pathlib.Path(wheel_directory) / name]
    return subprocess.run(tags, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
