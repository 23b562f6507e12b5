# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests of gemmctl: records the requests, and answers as the test says."""
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import msgpack

ROOT = pathlib.Path(__file__).resolve().parents[3]
GEMMCTL = os.environ.get("GEMMCTL", "gemmctl")

ANSWER = {"key": "0123456789abcdef0123456789abcdef", "tier": "exact", "source": "tuned",
          "family": "grouped_gemm", "config": {"BLOCK_SIZE_M": 64, "use": True}, "module": "",
          "time_us": 100.0, "spread": 0.01, "reference_us": 150.0, "tflops": 1.5, "gbps": 10.0,
          "floor_us": 80.0, "measured": 12, "generation": 3, "saved": True, "stamp": "s",
          "created_s": int(time.time()) - 300, "note": ""}


class Refusal(Exception):
    def __init__(self, name, message):
        super().__init__(message)
        self.name, self.message = name, message


class Fake:
    """`answers` has for each method a value, or a function of the params (and of `notify`)."""

    def __init__(self, folder):
        self.path = folder / "s.sock"
        self.asked = []
        self.answers = {"hello": {"version": 1, "build": "fake-build", "bucket_scheme": "sqrt2"},
                        "get": ANSWER, "tune": ANSWER}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread; a close would not
        self.thread.join()
        self.listener.close()

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        unpacker = msgpack.Unpacker(raw=False)
        while data := peer.recv(65536):
            unpacker.feed(data)
            for _, ident, method, params in unpacker:
                peer.sendall(msgpack.packb(self.answer(peer, ident, method, params)))

    def answer(self, peer, ident, method, params):
        self.asked.append((method, params))

        def notify(**progress):
            peer.sendall(msgpack.packb([2, "progress", {"request": ident, **progress}]))

        try:
            if method not in self.answers:
                raise Refusal("unknown_method", f"there is no method {method}")
            value = self.answers[method]
            if callable(value):
                value = value(params, notify) if value.__code__.co_argcount == 2 else value(params)
            return [1, ident, None, value]
        except Refusal as e:
            return [1, ident, {"name": e.name, "message": e.message, "survives": True}, None]

    def params_of(self, method):
        return [p for m, p in self.asked if m == method]

    def problems(self, method="get"):
        return [p["problem"] for p in self.params_of(method)]


def environment(fake, **more):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("GEMMD_", "XDG_"))}
    return {**keep, **({"GEMMD_SOCKET": str(fake.path)} if fake else {}), **more}


def ctl(fake, *args, code=0, **env):
    result = subprocess.run([GEMMCTL, *map(str, args)], capture_output=True, text=True, timeout=60,
                            env=environment(fake, **env))
    assert result.returncode == code, (args, result.stdout, result.stderr)
    return result


def ctl_json(fake, *args, code=0):
    return json.loads(ctl(fake, *args, "--json", code=code).stdout)


def rows_of(table, page=2):
    """A `list` method that returns the rows of `table` in pages."""
    def answer(params):
        f = params["filter"]
        order = {"best": "key", "history": "generation"}.get(params["what"], "id")
        there = [r for r in table if "after" not in f or r[order] > f["after"]]
        offset, limit = f.get("offset", 0), f.get("limit", 256)
        rows = there[offset:offset + min(page, limit)]
        end = offset + len(rows)
        return {"rows": rows, "total": len(there), "next": end if end < len(there) else None}
    return answer


BEST = [{"generation": i + 1, "key": f"{i:032x}", "op": "grouped_gemm", "family": "grouped_gemm",
         "problem": {"mode": "dX", "M": 16, "N": 32, "K": 64, "experts": 4, "topk": 2,
                     "dtype_in": "bf16", "dtype_out": "bf16", "permute_x": True},
         "class": "c", "source": "tuned", "config": {"A": i, "x": 0.1}, "module": "", "trial": i,
         "time_us": 100 / 3 + i, "spread": None, "reference_us": 2e-17, "flops": 1e12, "bytes": 1e6,
         "floor_us": 25.0, "atol": 0.01, "rtol": 0.01, "measured": 3, "stamp": "s", "uid": 0,
         "created_s": 1} for i in range(7)]
