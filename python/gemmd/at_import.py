# SPDX-License-Identifier: Apache-2.0
"""A function that is called when a module has been imported, by whoever imports it."""
import copy
import importlib.abc
import sys
import warnings


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the finders behind this one do, and calls then(module) after its code has run."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        finders = list(sys.meta_path)
        if name != self.name or self not in finders:  # another thread may have ended this
            return None
        for other in finders[finders.index(self) + 1:]:
            spec = other.find_spec(name, path, target) if hasattr(other, "find_spec") else None
            if spec is not None:
                _call(name, self._extend, spec)
                return spec
        return None

    def _extend(self, spec):
        """Gives the spec a loader that also calls then(). A copy: a zip file's loader is the same for all of its modules."""
        run_code, extended = spec.loader.exec_module, copy.copy(spec.loader)

        def run_and_call(module):
            run_code(module)
            _call(self.name, self.then, module)
        extended.exec_module = run_and_call
        spec.loader = extended


def _call(name, function, argument):
    """Calls function(argument). An error must not stop a job that imports its own packages."""
    try:
        function(argument)
    except Exception as e:  # pylint: disable=broad-except
        warnings.warn(f"gemmd: {name} stays as it is: {type(e).__name__}: {e}", RuntimeWarning, stacklevel=2)


def when_imported(name, then):
    """Calls then(module) whenever the module `name` has been imported, also now if it is there already. then() imports
    nothing that imports this module itself. An error of then() becomes a warning. Returns a function that ends this."""
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    if name in sys.modules:
        _call(name, then, sys.modules[name])

    def end():
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
    return end
