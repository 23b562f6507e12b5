# SPDX-License-Identifier: Apache-2.0
"""A folder of its own for every test, and a fake gemmd in it."""
import pathlib
import shutil
import tempfile

import pytest

from fake_gemmd import Fake


@pytest.fixture
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmctl-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def fake(folder):
    f = Fake(folder)
    yield f
    f.stop()
