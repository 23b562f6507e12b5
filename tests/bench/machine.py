# SPDX-License-Identifier: Apache-2.0
"""The facts about the machine in a benchmark's JSON record: versions once, clocks and power over time.
NVML's Python binding gives them if installed, else nvidia-smi; facts that neither has are left out."""
import datetime
import pathlib
import platform
import subprocess
import sys

QUERY = ["name", "uuid", "driver_version", "clocks.sm", "clocks.mem", "temperature.gpu",
         "power.draw", "power.limit", "memory.used", "clocks_throttle_reasons.active"]

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def said(value):
    """Shortens a path for a published record: the part below this tree, or else the file's name."""
    path = pathlib.Path(str(value))
    if not path.is_absolute():
        return str(value)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _smi(index, fields):
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "-i", str(index),
                               "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [v.strip() for v in done.stdout.strip().split(",")]
    return dict(zip(fields, values)) if done.returncode == 0 and len(values) == len(fields) else {}


class Machine:
    def __init__(self, torch, device):
        self.torch, self.index = torch, device.index
        self.nvml = self.handle = None
        if device.type == "cuda":
            self._open_nvml()

    def _open_nvml(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            uuid = str(self.torch.cuda.get_device_properties(self.index).uuid)
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(name)
            self.nvml = pynvml
        except Exception as e:  # a binding without its library, another driver or a MIG slice
            self.nvml = None
            print(f"machine: NVML is not used ({type(e).__name__}: {e})")

    def facts(self):
        torch = self.torch
        out = {"host": platform.platform(), "python": sys.version.split()[0],
               "torch": torch.__version__, "cuda": torch.version.cuda,
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "command": [said(word) for word in sys.argv]}
        if self.index is None:
            return out
        p = torch.cuda.get_device_properties(self.index)
        free, total = torch.cuda.mem_get_info(self.index)
        out |= {"name": p.name, "sm_count": p.multi_processor_count, "l2_bytes": p.L2_cache_size,
                "memory_bytes": p.total_memory, "memory_in_use_bytes": total - free,
                "bf16_reduced_precision_reduction":
                    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction}
        return out | {"nvidia_smi": _smi(self.index, QUERY)}

    def now(self):
        n = self.nvml
        if not n:
            return {}
        out = {}
        for name, ask in (
                ("sm_mhz", lambda: n.nvmlDeviceGetClockInfo(self.handle, n.NVML_CLOCK_SM)),
                ("celsius", lambda: n.nvmlDeviceGetTemperature(self.handle,
                                                               n.NVML_TEMPERATURE_GPU)),
                ("watt", lambda: n.nvmlDeviceGetPowerUsage(self.handle) / 1000),
                ("throttle", lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))):
            try:
                out[name] = ask()
            except n.NVMLError:
                pass
        return out
