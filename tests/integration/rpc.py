# SPDX-License-Identifier: Apache-2.0
"""An independent MessagePack-RPC client. It knows only docs/protocol.md and Python's msgpack, so any language can do the
same. Without pytest, so that programs that tests start as other users begin soon."""
import os
import socket
import time

import msgpack

# Multiplies every timeout of the tests, for slower sanitizer builds.
PATIENCE = float(os.environ.get("GEMMD_TEST_PATIENCE", "1"))


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(f"{error['name']}: {error['message']}")
        self.name, self.message, self.survives = error["name"], error["message"], error["survives"]


class Client:
    """MessagePack-RPC over a Unix socket; blocking, one thread."""

    def __init__(self, path, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout * PATIENCE)
        self.socket.connect(str(path))
        self.unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.next_id = 0
        self.responses, self.notifications = {}, []

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, method, **params):
        self.next_id += 1
        self.socket.sendall(msgpack.packb([0, self.next_id, method, params]))
        return self.next_id

    def read(self):
        """Returns the next message of the stream."""
        while True:
            for message in self.unpacker:
                return message
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the daemon closed the connection")
            self.unpacker.feed(data)

    def wait(self, request):
        while request not in self.responses:
            message = self.read()
            if message[0] == 1:
                self.responses[message[1]] = message
            else:
                assert message[0] == 2, message
                self.notifications.append((message[1], message[2]))
        _, _, error, result = self.responses.pop(request)
        if error is not None:
            raise RpcError(error)
        return result

    def call(self, method, **params):
        return self.wait(self.send(method, **params))

    def list(self, what, **filter_):
        rows, offset = [], 0
        while offset is not None:
            page = self.call("list", what=what, filter={**filter_, "offset": offset})
            rows += page["rows"]
            offset = page["next"]
        return rows


def gemm(mode="forward", m=256, n=256, k=256, experts=4, topk=2, **more):
    return {"op": "grouped_gemm", "mode": mode, "M": m, "N": n, "K": k, "experts": experts,
            "topk": topk, **more}


def eventually(condition, seconds=10, every=0.05):
    deadline = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every)
    raise AssertionError("it did not become true in time")
