# SPDX-License-Identifier: Apache-2.0
"""Times the configs of a Triton kernel, in the process that holds the key's lease.

A benchmark of the user's own times each config once, as under triton.autotune. Triton's benchmark
serves a race. Each config gets few samples. A config that cannot win any more is given up. The
others, the finalists, are timed in turns, so that all of them meet the same clocks.

A hint, which is a config that another tuner's file names, is timed first: it may lead from then on.

Speed may differ between sessions. So a new config is timed after the best known config, and its row
has that config's known time, multiplied by the ratio of both times now.
"""
import math
import statistics
import time

from gemmd.configs import write_config
from gemmd.triton_errors import is_of_config, reason_of, status_of
from gemmd.triton_rows import is_tritons_bench, name_of
from gemmd.triton_source import computed_by, text_of

# Let every time be within the factors 1 - e and 1 + e of the truth. Then the fastest config is at most
# (1 + e) / (1 - e) times as slow as the leader, in the same samples. The race gives a config up when its
# lowest time so far is above MARGIN times the leader's, so the fastest config stays while e is below the
# bound. The first samples are not taken in turns, and e holds the clock's drift. Afterwards a config is
# given up only when each of its rounds was too slow by that much.
#
#     samples    margin    the fastest config stays while e <=
#     first      1.25      0.111
#     rounds     1.10      0.048
#                1.05      0.024
#                1.02      0.0099
FIRST_MARGIN = 1.25
ROUND_MARGINS = (1.10, 1.10, 1.05, 1.05, 1.05, 1.02, 1.02, 1.02)
FIRST_SAMPLES = {"warmup": 1, "rep": 5}  # ms, for triton.testing.do_bench
ROUND_SAMPLES = {"warmup": 2, "rep": 10}
RENEW_S = 15.0  # seconds between a holder's renewals of its lease


class Timer:
    """Calls Triton's benchmark, and keeps the reason of an infinite time. `replaces`: the key's answer has
    failed in this launch."""

    def __init__(self, tuner, args, kwargs, replaces=False):
        self.tuner, self.args, self.kwargs, self.failure = tuner, args, kwargs, None
        self.replaces = replaces
        self.bench = tuner.do_bench
        self.can_race = is_tritons_bench(self.bench)
        self.samples, self.low_us = {}, math.inf  # by the benchmark's options; low_us: the last trial's 20 % quantile
        self.without = self._computed({})

    def _computed(self, keywords):
        return computed_by(getattr(self.tuner, "fn", None),
                           {**(getattr(self.tuner, "nargs", None) or {}), **self.kwargs, **keywords})

    def computed(self, config):
        """The heuristics' values that differ from the problem's, or that the problem lacks."""
        return {name: v for name, v in self._computed(config.all_kwargs()).items()
                if name not in self.without or text_of(v) != text_of(self.without[name])}

    def do_bench(self, call, **options):
        try:
            return self.bench(call, **options, **self.samples)
        except Exception as e:
            self.failure = e
            raise

    def trial(self, config, samples=None):
        """Times a config. Returns a record of docs/protocol.md, and an error to raise or None."""
        self.failure, name = None, name_of(config, self)
        self.tuner.do_bench, self.samples = self.do_bench, samples or {}
        try:
            times = self.tuner._bench(*self.args, config=config, **self.kwargs)
        except Exception as e:
            return failed(name, e), None if is_of_config(e) else e
        finally:
            self.tuner.do_bench = self.bench
        if self.failure is not None:
            return failed(name, self.failure), None
        times = times if isinstance(times, (list, tuple)) else [times]
        ms, low = float(times[0]), float(min(times[:2]))
        if not (math.isfinite(ms) and ms > 0):  # a benchmark reports a failure by such a time
            return {"config": name, "status": "invalid", "reason": f"do_bench returned {ms:g}"}, None
        self.low_us = low * 1e3
        return {"config": name, "time_us": ms * 1e3}, None

    def clean_up(self, config):
        """Resets the arguments that a timing changed, as Triton does after tuning."""
        full = {**self.tuner.nargs, **self.kwargs, **config.all_kwargs()}
        self.tuner.pre_hook(full, reset_only=True)


def failed(name, error):
    return {"config": name, "status": status_of(error), "reason": reason_of(error)}


def lines_of(configs, timer):
    """{written name: config}, without configs that gemmd cannot tell apart."""
    lines = {}
    for config in configs:
        lines.setdefault(write_config(name_of(config, timer)), config)
    return lines


class Session:
    """The known results of a problem's configs, and new timings. configs: {line: config}."""

    def __init__(self, client, problem, configs, known, timer):
        self.client, self.problem, self.timer, self.configs = client, problem, timer, configs
        lines = {line: row for row in known if (line := write_config(row["config"])) in self.configs}
        self.times = {line: row["time_us"] for line, row in lines.items()
                      if row["status"] == "ok" and row["time_us"]}
        self.failed = {line for line, row in lines.items() if row["status"] != "ok"}
        self.hints = lines.keys() - self.times.keys() - self.failed  # known to work; no time of this device
        self.is_first, self.scale, self.renewed_s = not self.times, 1.0, time.monotonic()
        self.lows = {}  # {line: 20 % quantile of a new config's first samples, or the best's known time}

    def unknown(self):
        """The configs without a result, hints first."""
        lines = [line for line in self.configs if line not in self.times and line not in self.failed]
        return sorted(lines, key=lambda line: line not in self.hints)

    def keep_lease(self):
        """Renews the lease every RENEW_S. acquire() takes the lease again after the daemon has started
        anew, but does not renew the lease when all configs are known; an empty record() does."""
        if time.monotonic() - self.renewed_s > RENEW_S:
            self.renewed_s = time.monotonic()
            self.client.acquire(self.problem, list(self.configs), now=True)
            self.client.record(self.problem, [])

    def _time(self, line, samples):
        """Times a config. Returns None when the config failed, after recording the failure."""
        self.keep_lease()
        trial, error = self.timer.trial(self.configs[line], samples if self.timer.can_race else None)
        if "time_us" in trial:
            return trial["time_us"]
        self.failed.add(line)
        self.times.pop(line, None)
        self.client.record(self.problem, [trial])
        if error is not None:
            raise error
        return None

    def _best(self):
        return min(self.times, key=self.times.get, default=None)

    def _compare(self):
        """Times the best known config, or the next best when the best fails."""
        while self.times:
            best = self._best()
            now = self._time(best, FIRST_SAMPLES)
            if now is not None:
                self.scale, self.lows[best] = self.times[best] / now, self.times[best]
                return

    def time_new(self, lines):
        """Times the unknown configs, given by `lines`. Returns the fastest line, or None."""
        for line in lines:
            if not self.is_first:
                self._compare()
            now = self._time(line, FIRST_SAMPLES)
            if now is not None:
                self.lows[line] = self.timer.low_us * self.scale
                self._record(line, now * self.scale)
        if self.timer.can_race and self.lows:
            self._race()
        return self._best()

    def _record(self, line, time_us):
        self.times[line] = time_us
        self.client.record(self.problem, [{"config": line, "time_us": time_us}])

    def _finalists(self):
        """The best, and the configs of this session that may still win."""
        best = self._best()
        return [line for line in self.times
                if line == best or self.lows.get(line, math.inf) <= FIRST_MARGIN * self.times[best]]

    def _race(self):
        """Times the finalists in turns, every second round in reverse order. The leader of the first
        samples stays to the end, and each time counts by its ratio to the leader's in the same
        round."""
        lines, rounds, leader = self._finalists(), {}, self._best()
        for turn, margin in enumerate(ROUND_MARGINS):
            if len(lines) < 2:
                break
            now = {line: self._time(line, ROUND_SAMPLES) for line in (lines[::-1] if turn % 2 else lines)}
            lines = [line for line in lines if now[line] is not None]
            if leader not in lines:  # the leader failed: begin anew beside the next best
                leader, rounds = min(lines, key=self.times.get, default=None), {}
            for line in lines:
                rounds.setdefault(line, []).append(now[line] / now[leader])
            lines = self._remaining(lines, rounds, leader, margin)
        for line, ratios in rounds.items():
            if line in self.times and line != leader:
                self._record(line, statistics.median(ratios) * self.times[leader])

    def _remaining(self, lines, rounds, leader, margin):
        fastest = min((statistics.median(rounds[line]) for line in lines), default=None)
        return [line for line in lines if line == leader or min(rounds[line]) <= margin * fastest]


def measure(session, lines):
    """Times the unknown configs, and puts the fastest. Returns the config, or None if all fail."""
    best = session.time_new(lines)
    if best is None:
        session.client.release(session.problem)
        return None
    session.client.put(session.problem, best, session.times[best])
    return session.configs[best]
