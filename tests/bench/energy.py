# SPDX-License-Identifier: Apache-2.0
"""The energy of a launch, by NVML's counter: at the power limit time is energy / limit.

A candidate runs back to back, so at the clock that the limit allows. The counter advances in steps
of tens of milliseconds, so it is read at a step, at the beginning and at the end.
"""
import time

import measure

WARM_S = 0.3
BATCH_S = 0.02  # seconds of launches between two readings of the counter
STEP_S = 1.0    # seconds: if the counter does not change for so long, it does not work


class CannotMeasure(measure.CannotTime):
    pass


class Meter:
    """`millijoules()` reads the energy counter; `sync()` waits for the device."""

    def __init__(self, millijoules, sync, clock=time.monotonic):
        self.read, self.sync, self.clock = millijoules, sync, clock

    def _batch(self, op, count):
        for _ in range(count):
            op()
        self.sync()

    def _batch_size(self, op):
        """Returns the number of launches that take about BATCH_S; these launches warm up the device."""
        count, launches, began = 1, 0, self.clock()
        while self.clock() - began < WARM_S:
            self._batch(op, count)
            launches += count
            count = max(1, int(launches / (self.clock() - began) * BATCH_S))
        return count

    def _to_step(self, op, count):
        """Launches op until the energy counter changes. Returns (the counter, the time, number of launches)."""
        before, launches, until = self.read(), 0, self.clock() + STEP_S
        while (now := self.read()) == before:
            if self.clock() > until:
                raise CannotMeasure(f"the energy counter stands still at {now} mJ")
            self._batch(op, count)
            launches += count
        return now, self.clock(), launches

    def of(self, op, seconds):
        """{"mj": millijoules of a launch, "us": microseconds of a launch, "watt": mean power}"""
        count = self._batch_size(op)
        began_mj, began, _ = self._to_step(op, count)
        launches = 0
        while self.clock() - began < seconds:
            self._batch(op, count)
            launches += count
        ended_mj, ended, more = self._to_step(op, count)
        launches += more
        passed, mj = ended - began, ended_mj - began_mj
        return {"mj": mj / launches, "us": passed / launches * 1e6, "watt": mj / 1e3 / passed}


def meter(torch, machine, seconds):
    """Returns a function that measures the energy of op's launches (Meter.of); None without --energy, or where NVML has
    no counter."""
    n = machine.nvml
    if not n or not seconds:
        return None
    try:
        n.nvmlDeviceGetTotalEnergyConsumption(machine.handle)
    except n.NVMLError as e:
        print(f"energy: not measured, NVML has no counter of it here ({e})")
        return None
    m = Meter(lambda: n.nvmlDeviceGetTotalEnergyConsumption(machine.handle), torch.cuda.synchronize)
    return lambda op: m.of(op, seconds)
