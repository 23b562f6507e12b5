# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a clear error, and the connection survives: the daemon answers the next request."""
import os
import pathlib
import random
import re
import socket
import stat
import time

import msgpack
import pytest

from conftest import RpcError, gemm

BAD_PROBLEMS = [
    # problem, name of the error, word of the message
    (gemm(m=0), "invalid", "M"),
    (gemm(n=-64), "invalid", "N"),
    (gemm(k=2**31), "invalid", "K"),
    (gemm(m=2**62), "invalid", "M"),
    (gemm(m="64"), "invalid", "M"),
    (gemm(m=64.5), "invalid", "M"),
    (gemm(m=2**30, n=2**30), "invalid", "elements"),
    (gemm(experts=0), "invalid", "experts"),
    (gemm(experts=5000), "invalid", "experts"),
    (gemm(topk=8, experts=4), "conflict", "topk"),
    (gemm(m=255), "invalid", "topk"),
    (gemm(permute_x=True, permute_y=True), "conflict", "permute"),
    (gemm(fuse_mul_post=True), "conflict", "permute_y"),
    (gemm(mode="dX", permute_y=True, fuse_mul_post=True), "conflict", "fuse_mul_post"),
    (gemm(accumulate=True), "conflict", "accumulate"),
    (gemm(mode="backward"), "invalid", "forward"),
    (gemm(dtype_in="int4"), "invalid", "bf16"),
    (gemm(dtype_out="fp32"), "conflict", "dtype_out"),
    (gemm(permute_x=1), "invalid", "true or false"),
    ("grouped_gemm mode=forward M=256 N=256 K=256", "invalid", "map"),
    (gemm(quant="fp8"), "invalid", "quant"),
    (gemm(routing="rows:1,2"), "conflict", "rou"),
    (gemm(routing="often"), "invalid", "rou"),
    (gemm(blocksize=64), "unknown_field", "blocksize"),
    ({"op": "gemv", "M": 1}, "unknown_op", "gemv"),
    ({"op": "grouped_gemm", "mode": "forward", "N": 64, "K": 64}, "invalid", "M"),
    ({"M": 1}, "invalid", "op"),
    ({"op": "custom:", "x": 1}, "unknown_op", "custom"),
    ({"op": "gemm", "mode": "forward", "M": 64, "N": 64, "K": 64, "experts": 2}, "conflict",
     "experts"),
]


@pytest.mark.parametrize("problem,name,word", BAD_PROBLEMS)
def test_bad_problems(daemon_of_module, problem, name, word):
    with daemon_of_module.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=problem, wait="cached")
        assert e.value.name == name and e.value.survives, e.value
        assert word in e.value.message
        assert c.call("status")["pid"]


def test_the_protocol_lists_every_field_of_a_problem(daemon_of_module):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    table = text[text.index("| field | takes | default"):].split("\n\n")[0].splitlines()[2:]
    listed = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    with daemon_of_module.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(unlike_all_of_them=1))
        known = e.value.message.split("it takes ")[1].split(", ")
        plain = c.call("why", problem={"op": "gemm", "mode": "dW", "M": 64.0, "N": 64, "K": 64,
                                       "dtype_out": None, "routing": [64]})["problem"]
        scaled = c.call("why", problem=gemm(quant="fp8_row"))["problem"]
    assert listed == {"op", *known}
    assert set(scaled) == listed - {"batch_invariant"}
    assert set(plain) == set(scaled) - {"scale_type"} and plain["op"] == "grouped_gemm"
    assert (plain["experts"], plain["topk"], plain["dtype_out"]) == (1, 1, "bf16")


BAD_REQUESTS = [
    ("get", {}, "invalid", "problem"),
    ("get", {"problem": 7}, "invalid", "problem"),
    ("get", {"problem": gemm(), "wiat": "now"}, "unknown_field", "wait"),
    ("cancel", {"nothing_like_it": 1}, "unknown_field", "it takes request"),
    ("status", {"deep": True}, "unknown_field", "it takes none"),
    ("shutdown", {"now": True}, "unknown_field", "it takes none"),
    ("get", {"problem": gemm(), "wait": "soon"}, "invalid", "tuned"),
    ("get", {"problem": gemm(), "deadline_ms": -1}, "invalid", "deadline_ms"),
    ("get", {"problem": gemm(), "atol": -0.5}, "invalid", "atol"),
    ("tune", {"problem": gemm(), "strategy": "magic"}, "invalid", "ranked"),
    ("tune", {"problem": gemm(), "strategy": "given"}, "invalid", "configs"),
    ("tune", {"problem": gemm(), "budget": -3}, "invalid", "budget"),
    ("tune", {"problem": gemm(), "restrict": {"BLOCK_SIZE_Q": 64}}, "unknown_field", "BLOCK_SIZE"),
    ("tune", {"problem": gemm(), "restrict": {"BLOCK_SIZE_M": [7]}}, "no_config", ""),
    ("tune", {"problem": gemm(), "restrict": {"BLOCK_SIZE_M": [64, "65"]}}, "invalid",
     'values such as 16, not "65"'),
    ("tune", {"problem": gemm(), "restrict": {"BLOCK_SIZE_M": True}}, "invalid", "not true"),
    ("tune", {"problem": gemm(), "configs": ["BLOCK_SIZE_M=64 permute_x=true"]}, "conflict",
     "permute_x"),
    ("tune", {"problem": gemm(), "configs": ["this is no config"]}, "invalid", ""),
    ("tune", {"problem": gemm(n=1004)}, "no_config", "multiple of 8"),
    ("tune", {"problem": gemm(k=12)}, "no_config", "multiple of 8"),
    ("frobnicate", {}, "unknown_method", "frobnicate"),
    ("list", {"what": "everything"}, "invalid", "best"),
    ("list", {"what": "trials", "filter": {"colour": "red"}}, "unknown_field", "colour"),
    ("show", {"key": "zz"}, "invalid", "key"),
    ("show", {"key": "0123456789"}, "not_found", ""),
    ("module", {"id": "../../etc/passwd", "offset": 0}, "invalid", ""),
    ("unquarantine", {"variant": "f" * 32}, "not_found", ""),
    ("hello", {"version": 99}, "version", "1"),
]


def custom(**fields):
    return {"op": "custom:limits", **fields}


# limit: (method, function from a size to parameters, largest allowed size, error)
LIMITS = {
    "fields of a config": ("put", lambda n: {"config": {f"a{i}": 1 for i in range(n)}}, 40, "invalid"),
    "fields of a problem": (
        "get", lambda n: {"problem": custom(**{f"a{i}": i for i in range(n - 1)})}, 40, "invalid"),
    "texts of a problem": ("get", lambda n: {"problem": custom(a="x" * (n - 1))}, 8192, "invalid"),
    "name of a field": ("get", lambda n: {"problem": custom(**{"a" * n: 1})}, 31, "invalid"),
    "text of a config": ("put", lambda n: {"config": {"a": "x" * (n - 2)}}, 511, "invalid"),
    "config of a trial": (
        "record", lambda n: {"trials": [{"config": {"a": "x" * (n - 2)}, "time_us": 1}]}, 511, "invalid"),
    "reason of a trial": (
        "record", lambda n: {"trials": [{"config": {"a": 1}, "status": "compile", "reason": "r" * n}]},
        319, "invalid"),
    "client": ("hello", lambda n: {"client": "c" * n}, 63, "invalid"),
    "name of an op": ("get", lambda n: {"problem": {"op": "custom:" + "o" * n}}, 48, "unknown_op"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_value_above_its_limit_is_refused_and_the_connection_stays(daemon_of_module, limit):
    method, params, most, name = LIMITS[limit]
    table = (pathlib.Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    assert re.search(rf"^\| [^|]* \| {most}[ |]", table, re.M), "protocol.md does not say it"
    beside = {"get": {"wait": "cached"}, "put": {"problem": custom(i=1), "time_us": 1},
              "record": {"problem": custom(i=1)}}.get(method, {})
    with daemon_of_module.connect() as c:
        try:
            c.call(method, **{**beside, **params(most)})
        except RpcError as e:
            assert e.name == "not_found", "as much as that is allowed"
        with pytest.raises(RpcError) as e:
            c.call(method, **{**beside, **params(most + 1)})
        assert e.value.name == name and e.value.survives, e.value
        assert c.call("status")["pid"], "on the same connection"


# the parameters of each method; `status` and `shutdown` ignore theirs
REPEATABLE = {
    "metrics": {"openmetrics": True},
    "get": {"problem": gemm(), "wait": "cached", "configs": [{"a": 1}], "restrict": {}},
    "tune": {"problem": gemm(), "deadline_ms": 1}, "space": {"problem": gemm(), "target": ""},
    "get_many": {"problems": [], "wait": "cached"}, "cancel": {"request": 1}, "hello": {"client": "a"},
    "put": {"problem": gemm(), "config": {"a": 1}, "time_us": 1.0}, "acquire": {"problem": gemm()},
    "record": {"problem": gemm(), "trials": []}, "release": {"problem": gemm()},
    "list": {"what": "best", "filter": {}}, "show": {"key": "123456"}, "why": {"problem": gemm()},
    "module": {"id": "a", "offset": 0}, "check": {"problem": gemm(), "config": {}},
    "pin": {"problem": gemm(), "config": {"a": 1}}, "unpin": {"key": "123456"}, "evict": {"key": "123456"},
    "promote": {"key": "123456"}, "unquarantine": {"variant": "a"}, "import": {"rows": []},
    "backup": {"path": "a"}, "pause": {"ms": 1}, "subscribe": {"on": True},
}


def pairs(fields, *more):
    """A MessagePack map, which may have a field twice."""
    all_of_them = [*fields.items(), *more]
    head = bytes([0x80 | len(all_of_them)])
    return head + b"".join(msgpack.packb(part) for pair in all_of_them for part in pair)


@pytest.mark.parametrize("method", REPEATABLE)
def test_every_method_refuses_a_parameter_that_is_given_twice(daemon_of_module, method):
    params = REPEATABLE[method]
    with daemon_of_module.connect() as c:
        for again in params.items():
            c.next_id += 1
            c.socket.sendall(b"\x94\x00" + msgpack.packb(c.next_id) + msgpack.packb(method) +
                             pairs(params, again))
            with pytest.raises(RpcError, match="is given twice") as e:
                c.wait(c.next_id)
            assert e.value.survives and again[0] in e.value.message


def test_every_method_is_asked_twice_for_something(daemon_of_module):
    with daemon_of_module.connect() as c:
        assert set(c.call("hello")["capabilities"]) - set(REPEATABLE) == {"status", "shutdown"}


def test_a_problem_or_trial_that_names_a_field_twice_is_refused(daemon_of_module):
    trial = pairs({"config": {"a": 1}, "time_us": 1.0}, ("config", {"a": 2}))
    requests = [
        (b"get", b"\x81\xa7problem" + pairs(gemm(), ("op", "gemm"))),
        (b"get", b"\x81\xa7problem" + pairs(custom(i=1), ("op", "custom:other"))),
        (b"record", b"\x82\xa7problem" + msgpack.packb(custom(i=1)) + b"\xa6trials\x91" + trial),
    ]
    with daemon_of_module.connect() as c:
        for method, params in requests:
            c.next_id += 1
            c.socket.sendall(b"\x94\x00" + msgpack.packb(c.next_id) + msgpack.packb(method.decode()) + params)
            with pytest.raises(RpcError, match="is given twice"):
                c.wait(c.next_id)


@pytest.mark.parametrize("method,params,name,word", BAD_REQUESTS)
def test_bad_requests(daemon_of_module, method, params, name, word):
    with daemon_of_module.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call(method, **params)
        assert e.value.name == name, e.value
        assert word in e.value.message
    assert daemon_of_module.status()["pid"]


def expect_error_then_close(c, name):
    message = c.read()
    assert message[0] == 1 and message[2]["name"] == name and not message[2]["survives"], message
    with pytest.raises(EOFError):
        c.read()


BAD_STREAMS = {
    "not msgpack": (b"GET / HTTP/1.1\r\n\r\n", "malformed"),
    "reserved byte": (b"\xc1", "malformed"),
    "2^29 elements in five bytes": (b"\xdd\x20\x00\x00\x00", "too_large"),
    "a map of 2^31 pairs": (b"\xdf\x80\x00\x00\x00", "too_large"),
    "a string of 4 GiB": (b"\x94\x00\x01\xdb\xff\xff\xff\xff", "too_large"),
    "a message over 64 KiB": (msgpack.packb([0, 1, "get", {"x": "y" * 70000}]), "too_large"),
    "too deep": (b"\x91" * 64, "malformed"),
    "an extension type": (b"\x94\x00\x01\xc7\x04\x01abcd", "malformed"),
    "a bare integer": (b"\x07", "malformed"),
    "no such message type": (msgpack.packb([9, 1, "get", {}]), "malformed"),
    "a request of three": (msgpack.packb([0, 1, "get"]), "malformed"),
    "an id that is no number": (msgpack.packb([0, "one", "get", {}]), "malformed"),
    "a method that is no text": (msgpack.packb([0, 1, 7, {}]), "malformed"),
    "a response nobody asked for": (msgpack.packb([1, 1, None, {}]), "malformed"),
}


@pytest.mark.parametrize("data,name", BAD_STREAMS.values(), ids=BAD_STREAMS)
def test_bad_streams(daemon_of_module, data, name):
    before = daemon_of_module.status()["rss_bytes"]
    with daemon_of_module.connect() as c:
        c.socket.sendall(data)
        expect_error_then_close(c, name)
    assert daemon_of_module.status()["rss_bytes"] < before + 8 * 2**20


def test_params_that_are_no_map(daemon_of_module):
    with daemon_of_module.connect() as c:
        c.socket.sendall(msgpack.packb([0, 1, "get", 7]))
        with pytest.raises(RpcError) as e:
            c.wait(1)
        assert e.value.name == "invalid" and e.value.survives
        assert c.call("status")["pid"]


def text(word, head):
    return head + (b"" if head[0] & 0xe0 == 0xa0 else bytes([len(word)])) + word


@pytest.mark.parametrize("second", [b"\x83" + b"\x01\x02" * 3, b"\xdd\x00\x00\x20\x00" + b"\xc0" * 0x2000],
                         ids=["a map", "too many"])
@pytest.mark.parametrize("forms", [b"\xa8\xa8", b"\xa8\xd9", b"\xd9\xa8", b"\xd9\xd9"], ids=bytes.hex)
def test_an_argument_given_twice(daemon_of_module, forms, second):
    """A short text has two encodings. Code that compares names and code that compares bytes could take different fields."""
    params = b"\x82" + text(b"problems", forms[:1]) + b"\x90" + text(b"problems", forms[1:]) + second
    with daemon_of_module.connect() as c:
        c.socket.sendall(b"\x94\x00\x01\xa8get_many" + params)
        with pytest.raises(RpcError, match="'problems' is given twice") as e:
            c.wait(1)
        assert e.value.name == "invalid"
        c.next_id = 1
        assert c.call("status")["pid"]


def test_byte_by_byte_is_fine(daemon_of_module):
    with daemon_of_module.connect() as c:
        for byte in msgpack.packb([0, 5, "get", {"problem": gemm(), "wait": "cached"}]):
            c.socket.sendall(bytes([byte]))
        assert c.wait(5)["tier"]


def test_random_bytes_never_hurt(daemon_of_module):
    rng = random.Random(20261121)
    good = msgpack.packb([0, 1, "get", {"problem": gemm(), "wait": "cached"}])
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with daemon_of_module.connect() as c:
            try:
                c.socket.sendall(bytes(data[: rng.randint(1, len(data))]))
                c.socket.shutdown(socket.SHUT_WR)
                while c.socket.recv(65536):
                    pass
            except OSError:
                pass
    assert daemon_of_module.status()["pid"]


def test_a_client_that_never_reads_is_cut_off_and_others_are_served(daemon_of_module):
    d = daemon_of_module
    silent = d.connect()
    silent.socket.setblocking(False)
    request = msgpack.packb([0, 1, "status", {}])
    before = d.status()["rss_bytes"]
    began = time.monotonic()
    while time.monotonic() - began < 2:
        try:
            silent.socket.send(request * 100)
        except BlockingIOError:
            time.sleep(0.01)
        except (BrokenPipeError, ConnectionResetError):
            break
    assert d.status()["rss_bytes"] < before + 16 * 2**20
    silent.close()


def test_a_disconnect_in_mid_message(daemon_of_module):
    with daemon_of_module.connect() as c:
        c.socket.sendall(msgpack.packb([0, 1, "get", {"problem": gemm()}])[:20])
    assert daemon_of_module.status()["pid"]


def test_the_socket_is_for_owner_and_group(daemon_of_module):
    mode = os.stat(daemon_of_module.socket).st_mode
    assert stat.S_ISSOCK(mode) and mode & 0o777 == 0o660


def test_config_conflicts_name_the_rule(daemon_of_module):
    with daemon_of_module.connect() as c:
        default = c.call("get", problem=gemm(), wait="cached")["config"]
        assert c.call("check", problem=gemm(), config=default)["valid"] is True
        bad = c.call("check", problem=gemm(permute_x=True), config={**default, "permute_x": False})
        assert bad["valid"] is False and "permute_x" in bad["message"]
        tma = c.call("check", problem=gemm(permute_x=True), config={**default, "use_tma_load_x": True})
        assert tma["valid"] is False and "use_tma_load_x" in tma["message"]
        big = c.call("check", problem=gemm(), config={**default, "BLOCK_SIZE_M": 256,
                                                      "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64,
                                                      "num_stages": 5})
        assert big["valid"] is False
        if big.get("resource"):
            assert big["required"] > big["limit"] > 0
