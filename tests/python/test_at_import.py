# SPDX-License-Identifier: Apache-2.0
"""gemmd.at_import: a function that is called when a module has been imported, by whoever imports it."""
import importlib
import importlib.machinery
import sys
import zipfile

import pytest

from gemmd.at_import import when_imported

pytestmark = pytest.mark.no_library


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `imported_late` with the modules `wanted` and `other`."""
    folder = tmp_path / "imported_late"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "other.py").write_text("")
    (folder / "wanted.py").write_text("from imported_late import other\nlast = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    yield "imported_late"
    sys.meta_path[:] = finders
    for name in [n for n in sys.modules if n.partition(".")[0] == "imported_late"]:
        del sys.modules[name]


def test_it_is_called_once_behind_the_modules_code(package):
    seen = []
    when_imported(f"{package}.wanted", lambda module: seen.append((module.__name__, module.last)))
    importlib.import_module(f"{package}.other")
    assert seen == []
    importlib.import_module(f"{package}.wanted")
    importlib.import_module(f"{package}.wanted")
    assert seen == [(f"{package}.wanted", 7)]


def test_it_is_called_at_once_for_a_module_that_is_there(package):
    module, seen = importlib.import_module(f"{package}.wanted"), []
    finders = len(sys.meta_path)
    when_imported(f"{package}.wanted", seen.append)()
    assert seen == [module] and len(sys.meta_path) == finders
    when_imported(f"{package}.wanted", seen.append)
    assert importlib.reload(module) is module and seen == [module] * 3


def test_it_is_called_again_when_the_module_is_loaded_again(package):
    seen = []
    when_imported(f"{package}.wanted", seen.append)
    importlib.reload(importlib.import_module(f"{package}.wanted"))
    assert len(seen) == 2


def test_two_functions_for_a_module(package):
    seen = []
    when_imported(f"{package}.wanted", lambda module: seen.append("first"))
    when_imported(f"{package}.wanted", lambda module: seen.append("second"))
    importlib.import_module(f"{package}.wanted")
    assert seen == ["first", "second"]


def test_after_its_end_nothing_is_called(package):
    seen, finders = [], list(sys.meta_path)
    end = when_imported(f"{package}.wanted", seen.append)
    end()
    end()
    importlib.import_module(f"{package}.wanted")
    assert seen == [] and sys.meta_path == finders


def test_a_module_that_does_not_exist_is_pythons_error(package):
    when_imported(f"{package}.missing", lambda module: pytest.fail("called"))
    with pytest.raises(ModuleNotFoundError, match="missing"):
        importlib.import_module(f"{package}.missing")


def test_an_error_of_the_modules_code_reaches_its_importer(package, tmp_path):
    (tmp_path / package / "broken.py").write_text("1 / 0\n")
    when_imported(f"{package}.broken", lambda module: pytest.fail("called"))
    with pytest.raises(ZeroDivisionError):
        importlib.import_module(f"{package}.broken")


def test_other_finders_are_asked(package):
    seen = []

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            seen.append(name)
    when_imported(f"{package}.wanted", lambda module: seen.append("called"))
    sys.meta_path.insert(1, Finder)
    importlib.import_module(f"{package}.wanted")
    assert seen == [package, f"{package}.wanted", f"{package}.other", "called"]


def test_a_loader_that_cannot_be_copied_loads_its_module(package):
    class Loader(importlib.machinery.SourceFileLoader):
        def __copy__(self):
            raise TypeError("no copies")

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if name == f"{package}.wanted":
                spec.loader = Loader(name, spec.origin)
            return spec
    when_imported(f"{package}.wanted", lambda module: pytest.fail("called"))
    sys.meta_path.insert(1, Finder)
    with pytest.warns(RuntimeWarning, match="stays as it is: TypeError: no copies"):
        assert importlib.import_module(f"{package}.wanted").last == 7


def test_in_a_zip_file_the_other_modules_are_left_alone(package, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as z:
        for name in ("__init__", "other", "wanted"):
            z.write(tmp_path / package / f"{name}.py", f"{package}/{name}.py")
    monkeypatch.syspath_prepend(str(tmp_path / "all.zip"))
    seen = []
    when_imported(f"{package}.wanted", lambda module: seen.append((module.__name__, module.last)))
    importlib.import_module(f"{package}.wanted")
    assert seen == [(f"{package}.wanted", 7)] and "all.zip" in sys.modules[f"{package}.other"].__file__


def test_an_error_of_the_function_is_a_warning(package):
    when_imported(f"{package}.wanted", lambda module: module.no_such_name)
    with pytest.warns(RuntimeWarning, match=f"gemmd: {package}.wanted stays as it is: AttributeError"):
        assert importlib.import_module(f"{package}.wanted").last == 7
