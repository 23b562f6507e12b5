# SPDX-License-Identifier: Apache-2.0
"""The beginning of tests of gemmd.torch on a GPU. Importing this skips the module that imports it without
PyTorch, a GPU or a libgemmd.so ($GEMMD_LIBRARY, or the one of build/)."""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("GEMMD_LIBRARY", str(ROOT / "build" / "client" / "libgemmd.so"))
os.environ["GEMMD_SYSTEM"] = "0"

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
if not pathlib.Path(os.environ["GEMMD_LIBRARY"]).exists():
    pytest.skip(f"no {os.environ['GEMMD_LIBRARY']}", allow_module_level=True)

import gemmd.torch as gt  # noqa: E402


@pytest.fixture(params=["compiled here", "plain"])
def by(request, tmp_path):
    """How products are computed; after the test, gt.status() must agree."""
    torch.manual_seed(0)
    gt.configure(socket=str(tmp_path / "nobody.sock"), enabled=request.param != "plain", wait="cached", retry_s=None)
    yield request.param
    assert {p["how"] for p in gt.status()} == {request.param}, gt.status()
    gt.configure(enabled=True)


def error(a, b):
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())
