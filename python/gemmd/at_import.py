# SPDX-License-Identifier: Apache-2.0
"""A function that is called when a module has been imported, by whoever imports it."""
import importlib.abc
import importlib.machinery
import sys
import warnings


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as Python would, and calls then(module) after its code has run."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            self._extend(spec.loader)
        return spec

    def _extend(self, loader):
        run_code = loader.exec_module

        def run_and_call(module):
            run_code(module)
            _call(self.name, self.then, module)
        loader.exec_module = run_and_call


def _call(name, then, module):
    """Calls then(module). An error must not stop a job that imports its own packages."""
    try:
        then(module)
    except Exception as e:  # pylint: disable=broad-except
        warnings.warn(f"gemmd: {name} stays as it is: {type(e).__name__}: {e}", RuntimeWarning, stacklevel=2)


def when_imported(name, then):
    """Calls then(module) now if the module `name` is imported already, else when it is. An error of then() becomes a
    warning. Returns a function that ends this."""
    if name in sys.modules:
        _call(name, then, sys.modules[name])
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)

    def end():
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
    return end
