# SPDX-License-Identifier: Apache-2.0
"""python -m gemmd.torch [options] train.py ...: runs an unchanged script on gemmd's kernels.

install() comes first, then the script runs as Python would run it. torchrun starts it so:

    torchrun --nproc-per-node 8 -m gemmd.torch train.py ...
"""
import argparse
import atexit
import importlib.util
import os
import runpy
import sys


def _read_pause_ms(text):
    from gemmd.torch.plans import check_pause_ms
    try:
        return check_pause_ms(int(text))
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def _parse(arguments):
    from gemmd.torch.plans import WAITS
    p = argparse.ArgumentParser(prog="python -m gemmd.torch", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--wait", choices=WAITS,
                   help="tune a new product before its first call (tuned), in the background (now), "
                   "between the optimizer's steps (boundary), or never (cached)")
    p.add_argument("--boundary-ms", type=_read_pause_ms, default=50,
                   help="with --wait boundary: the GPU pauses for at most so long after a step (50)")
    p.add_argument("--deadline-ms", type=float, help="wait this long for a product")
    p.add_argument("--socket", help="the daemon's socket")
    p.add_argument("--autostart", action="store_true", default=None, help="start a daemon when none answers")
    p.add_argument("--report", action="store_true",
                   help="print at the end which products ran on what (also GEMMD_TORCH_REPORT=1)")
    p.add_argument("-m", dest="module", action="store_true", help="the script is a module's name")
    p.add_argument("script")
    p.add_argument("arguments", nargs=argparse.REMAINDER).required = False
    return p.parse_args(arguments)


def _has_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as e:
        if f"{name}.".startswith(f"{e.name}."):  # the package above it
            return False
        raise


def _run(options):
    if options.module:
        sys.path[0] = os.getcwd()
        if not _has_module(options.script):
            sys.exit(f"python -m gemmd.torch: there is no module {options.script}")
        sys.argv = [options.script, *options.arguments]
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(options.script):
        sys.exit(f"python -m gemmd.torch: there is no {options.script}")
    if os.path.isdir(options.script) and not os.path.exists(os.path.join(options.script, "__main__.py")):
        sys.exit(f"python -m gemmd.torch: the folder {options.script} has no __main__.py")
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    sys.argv = [options.script, *options.arguments]
    runpy.run_path(options.script, run_name="__main__")


def main(arguments=None):
    options = _parse(arguments)
    from torch.optim import optimizer
    from gemmd.torch import boundary, install_report, override
    from gemmd.torch.plans import plans
    settings = {name: getattr(options, name) for name in ("wait", "deadline_ms", "socket", "autostart")}
    override.install(**{name: value for name, value in settings.items() if value is not None})
    if plans.settings.wait == "boundary":  # also from GEMMD_WAIT
        optimizer.register_optimizer_step_post_hook(lambda *_: boundary(options.boundary_ms))
    if options.report or os.environ.get("GEMMD_TORCH_REPORT", "") not in ("", "0"):
        atexit.register(install_report.print_report)
    _run(options)


if __name__ == "__main__":
    main()
