# SPDX-License-Identifier: Apache-2.0
"""gemmd's side of the comparisons moe_peers.py and dense_peers.py: their common options, asking gemmd
for the best kernels, and loading the kernels.

The programs ask for all kernels, stop gemmd, and then measure: only gemmd's loaded kernels are on the
device while times are taken. A kernel that gemmd could not tune in time is left out with its reason,
never replaced by a lesser kernel.
"""
import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import sys
import threading
import time

import gemmd_ffi
import measure
import report
from machine import ROOT, said
from service import Service

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

LINGER_MS = 3000
HANG_S = 60  # limit for a row; its samples take a second or two


def arguments(description):
    p = argparse.ArgumentParser(description=description,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build",
                   help="build folder: its daemon/gemmd and client/libgemmd.so are used")
    p.add_argument("--gemmd", type=pathlib.Path, help="the gemmd program instead")
    p.add_argument("--lib", type=pathlib.Path,
                   help="libgemmd.so instead; what it needs may lie beside it")
    p.add_argument("--device", default="cuda:0",
                   help="cuda:0, or cpu: a rehearsal without a GPU, whose times mean nothing")
    p.add_argument("--store", type=pathlib.Path, help="begin with what --out-store wrote before")
    p.add_argument("--out-store", type=pathlib.Path, help="write what is known after tuning")
    p.add_argument("--bucket", help="bucket scheme of a new store (default exact)")
    p.add_argument("--no-tune", action="store_true", help="measure only what --store knows")
    p.add_argument("--tune-only", action="store_true", help="tune and write --out-store, no more")
    p.add_argument("--again", action="store_true", help="tune also what is known")
    p.add_argument("--budget", type=int, default=0, help="configs to measure for a problem")
    p.add_argument("--budget-ms", type=int, default=0, help="device time for a problem")
    p.add_argument("--strategy", help="gemmd's strategy, e.g. ranked, exhaustive")
    p.add_argument("--restrict", help='JSON: only these values, {"BLOCK_SIZE_M": [64, 128]}')
    p.add_argument("--configs", help="JSON, or a file with JSON: just these configs")
    p.add_argument("--tune-seconds", type=float, default=400,
                   help="what is not tuned by then is not measured")
    p.add_argument("--seconds", type=float, default=150,
                   help="what is not measured by then, from the end of tuning, is listed")
    p.add_argument("--gap-ms", type=float, default=5, help="idle time before each sample")
    p.add_argument("--spin-us", type=float, default=60, help="least spin ahead of each sample")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log", type=pathlib.Path, help="keep gemmd's log here")
    p.add_argument("--json", type=pathlib.Path, help="the record: all samples, configs, machine")
    latest.add_option(p)
    p.add_argument("--results", type=pathlib.Path, nargs="+", metavar="FILE",
                   help="say what --json files hold; nothing is run")
    return p


@dataclasses.dataclass
class Wanted:
    name: str
    problem: gemmd_ffi.Problem
    answer: object = None
    reason: str = ""  # why the answer is missing
    kernel: object = None
    asked_s: float = 0.0

    def said(self):
        a = self.answer
        return self.reason or f"{a.time_us:9.1f} us  {a.source}  {a.config_text}"

    def record(self):
        return {"reason": self.reason, "asked_s": round(self.asked_s, 2),
                **(dict(self.answer.to_dict(), config=self.answer.config_text) if self.answer
                   else {})}


def open_library(options):
    path = options.lib or options.build / "client" / "libgemmd.so"
    try:
        return gemmd_ffi.Library(path)
    except OSError as e:
        raise SystemExit(f"--lib: {e}") from None


def start(options, library):
    service_options = ["--linger-ms", LINGER_MS]
    if options.bucket or not options.store:
        service_options += ["--bucket", options.bucket or "exact"]
    program = options.gemmd or options.build / "daemon" / "gemmd"
    service = Service(library, program.resolve(), options.device, options.store, service_options,
                      options.log).start()
    build = service.hello()["build"]
    if not library.has_build(build):
        service.stop()
        raise SystemExit(f"{library.path} was not built of the sources of this gemmd ({build}): "
                         "what it would launch is not what was measured. Build both anew")
    return service


def _query(options, left_s):
    configs = options.configs
    if configs and not configs.lstrip().startswith("[") and pathlib.Path(configs).is_file():
        configs = pathlib.Path(configs).read_text()
    return {"restrict": options.restrict, "configs": configs, "budget": options.budget,
            "budget_ms": options.budget_ms, "wait": "cached" if options.no_tune else "tuned",
            "again": options.again, "strategy": options.strategy,
            "deadline_ms": max(1000, int(left_s * 1000))}


def _with_module(ask, wanted, answer, left_s):
    """Returns the answer if the store has its kernel. Otherwise gemmd compiles and measures this config again."""
    try:
        ask.module(answer.module)
        return answer
    except gemmd_ffi.GemmdError as e:
        if e.name != "not_found":
            raise
    print(f"  {wanted.name}: its kernel is not in the store, compiled again", flush=True)
    return ask.tune(wanted.problem, configs=[answer.config_text],
                    deadline_ms=max(1000, int(left_s * 1000)))


def _ask_one(ask, wanted, options, left_s):
    if left_s <= 0:
        wanted.reason = "not tuned: --tune-seconds were over"
        return
    try:
        answer = ask.get(wanted.problem, **_query(options, left_s))
        if answer.tier != "exact":
            wanted.reason = f"not tuned: answered by tier {answer.tier} ({answer.note})"
        else:
            wanted.answer = _with_module(ask, wanted, answer, left_s)
    except gemmd_ffi.GemmdError as e:
        wanted.reason = str(e)


def ask_all(service, all_wanted, options):
    """Asks gemmd for each wanted kernel; stores its answer, or the reason why there is none."""
    began = time.monotonic()
    for i, wanted in enumerate(all_wanted, 1):
        at = time.monotonic()
        _ask_one(service.ask, wanted, options, began + options.tune_seconds - at)
        wanted.asked_s = time.monotonic() - at
        print(f"ask {i}/{len(all_wanted)} {wanted.asked_s:6.1f} s  {wanted.name}: {wanted.said()}",
              flush=True)
    return time.monotonic() - began


def load_all(service, all_wanted):
    """Loads all answered kernels into the current context, which the caller has made."""
    for wanted in all_wanted:
        if wanted.answer:
            try:
                wanted.kernel = service.ask.kernel(wanted.problem, wanted.answer)
            except gemmd_ffi.GemmdError as e:
                wanted.reason = str(e)


def new_record(program, options):
    return {"program": program, "options": {k: said(v) for k, v in vars(options).items()}}


def _tune(service, wanted, options, record):
    """Tunes the wanted kernels. Writes the store even after a failure, to keep finished tunings."""
    record["gemmd"] = {"hello": service.hello(), "library": said(service.library.path)}
    try:
        record["asked_s"] = round(ask_all(service, wanted, options), 1)
    finally:
        if options.out_store:
            service.save(options.out_store)
    known = sum(bool(w.answer) for w in wanted)
    print(f"{known} of {len(wanted)} kernels are known, {record['asked_s']:.0f} s", flush=True)
    return known == len(wanted)


def exit_status(records):
    return max(report.exit_status(record["rows"]) for record in records)


def say_again(files, conclude):
    records = [json.loads(path.read_text()) for path in files]
    for record in records:
        conclude(record)
    return records


def run(torch, options, wanted, record, conclude, bench):
    """The common part of moe_peers.py and dense_peers.py: tune, load, stop gemmd, bench(torch, device, record), then
    conclude(record), which adds verdicts to the record and prints the record."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = list(wanted)
    service = start(options, open_library(options))
    try:
        all_known = _tune(service, wanted, options, record)
        if options.tune_only:
            return 0 if all_known else 3
        device = measure.torch_device(torch, options.device)
        load_all(service, wanted)
    finally:
        service.stop()
    torch.manual_seed(options.seed)
    try:
        with torch.no_grad():
            bench(torch, device, record)
        conclude(record)
        latest.keep(options, record["program"], _plain(record), record["machine"]["name"])
    finally:
        write_json(options.json, record)
    return exit_status([record])


@contextlib.contextmanager
def watched(result, record, options):
    """Watches a row, since a kernel that never ends cannot be stopped: after HANG_S it writes the record and ends the
    process."""
    def give_up():
        result["wrong"]["row"] = f"something hangs: not done after {HANG_S} s"
        print(f"!! {result['name']}: {result['wrong']['row']}; giving up", flush=True)
        write_json(options.json, record)
        os._exit(1)

    timer = threading.Timer(HANG_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _plain(value):
    """Replaces NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path, record):
    """Writes the record. Each list of numbers is on a single line, because people read and compare the file, too."""
    if path:
        text = json.dumps(_plain(record), indent=1, default=str, allow_nan=False)
        text = re.sub(r"\[[-+.\w,\s]*?\]", lambda m: " ".join(m.group().split()), text)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
