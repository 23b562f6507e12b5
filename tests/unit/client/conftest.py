# SPDX-License-Identifier: Apache-2.0
"""A temporary folder for every test, with a fake gemmd."""
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
