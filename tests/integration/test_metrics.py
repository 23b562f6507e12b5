# SPDX-License-Identifier: Apache-2.0
"""Metrics: what gemmd counts, the text that monitoring systems read, and the server of /metrics."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import msgpack
import pytest
from conftest import DATA, GEMMCTL, GEMMD, PATIENCE, RUNNER, SYNTHETIC, Daemon

PROBLEM = {"op": "grouped_gemm", "mode": "forward", "M": 512, "N": 1024, "K": 1024, "experts": 32, "topk": 4}
PROMTOOL = shutil.which("promtool")
SAMPLE = re.compile(r'(\w+)\{([^}]*)\} (\S+)')


def samples(text):
    """{(name, own labels): value}; the labels gpu and uuid are left out."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            own = re.sub(r'gpu="[^"]*",uuid="[^"]*",?', "", labels)
            assert (name, own) not in found, line
            found[name, own] = float(value)
    return found


def check_openmetrics(text):
    """The rules of OpenMetrics that a text of several daemons may break: each family in one piece, counters' names."""
    *lines, end = text.splitlines()
    assert end == "# EOF" and text.endswith("\n")
    family, types, seen = None, {}, set()
    for line in lines:
        assert line != "# EOF"
        if line.startswith("# TYPE "):
            family, types[family] = line.split()[2], line.split()[3]
            assert family not in seen, family
            seen.add(family)
        elif line.startswith("#"):
            assert line.split()[2] == family
        else:
            name = line.partition("{")[0]
            suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
            assert name in [family + s for s in suffixes[types[family]]], line
    assert types
    return types


def promtool(*words, text=None):
    done = subprocess.run([PROMTOOL, *map(str, words)], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def http(address, request):
    """The (code, head, body) of a request's answer; the server closes the connection."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(20 * PATIENCE)
        s.connect(address)
        s.sendall(request)
        data = b""
        while part := s.recv(65536):
            data += part
    head, _, body = data.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 "), data
    return int(head.split()[1]), head, body


def get(address, path="/metrics", method="GET", accept="*/*"):
    return http(address, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode())


# ---- what is counted -------------------------------------------------------------------------------------------------

def test_hits_and_tunings_are_counted_with_the_time_that_they_save(daemon):
    d = daemon()
    with d.connect() as c:
        lower = c.call("get", problem=PROBLEM, wait="cached")
        c.call("tune", problem=PROBLEM)
        answers = [c.call("get", problem=PROBLEM) for _ in range(5)]
        with pytest.raises(Exception, match="unknown_op"):
            c.call("get", problem={"op": "nothing"})
        c.call("get_many", problems=[PROBLEM, PROBLEM], wait="cached")
        c.call("get_many", problems=[PROBLEM, PROBLEM], wait="cached")
        seen = samples(c.call("metrics")["text"])
    saved = max(0, answers[0]["reference_us"] - answers[0]["time_us"]) / 1e6
    assert lower["tier"] != "exact" and answers[0]["tier"] == "exact" and saved > 0
    assert seen["gemmd_hits_total", ""] == 5 + 4
    assert seen["gemmd_saved_seconds_total", ""] == pytest.approx(9 * saved, rel=1e-3)
    assert seen["gemmd_answers_total", 'tier="exact"'] == 5 + 4 + 1  # and the tuning's own answer
    assert seen["gemmd_answers_total", f'tier="{lower["tier"]}"'] == 1
    assert seen["gemmd_misses_total", ""] == 2
    assert seen["gemmd_requests_total", 'method="get",result="answered"'] == 1 + 5
    assert seen["gemmd_requests_total", 'method="get",result="refused"'] == 1
    assert seen["gemmd_requests_total", 'method="tune",result="later"'] == 1
    assert seen["gemmd_errors_total", 'error="unknown_op"'] == 1
    assert seen["gemmd_errors_total", 'error="crashed"'] == 0  # so that the first one is an increase
    assert seen["gemmd_jobs_total", 'result="done"'] == 1
    assert seen["gemmd_runner_starts_total", ""] == 1
    assert seen["gemmd_tuning_seconds_total", ""] > 0 and seen["gemmd_runner_up_seconds_total", ""] > 0
    assert seen["gemmd_database_rows", 'table="best"'] == 1 and seen["gemmd_database_bytes", ""] > 0
    # the first get_many decodes its problems in a slice, and the second is answered from its bytes
    assert seen["gemmd_hit_seconds_count", ""] == 5 + 1
    assert seen["gemmd_hit_seconds_bucket", 'le="+Inf"'] == 6 and seen["gemmd_hit_seconds_sum", ""] > 0


def test_the_buckets_of_hits_are_cumulative(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("tune", problem=PROBLEM)
        for _ in range(50):
            c.call("get", problem=PROBLEM)
        seen = samples(c.call("metrics")["text"])
    buckets = [v for (name, _), v in seen.items() if name == "gemmd_hit_seconds_bucket"]
    assert buckets == sorted(buckets) and buckets[-1] == 50 and buckets[0] < 50


def test_deaths_of_runners_and_quarantine_are_counted(daemon):
    d = daemon()
    d.call("tune", problem=PROBLEM)
    before = samples(d.call("metrics")["text"])
    assert before["gemmd_runner_up", ""] == 1
    os.kill(d.runner_pid(), signal.SIGKILL)
    while d.runner_pid():
        time.sleep(0.01)
    seen = samples(d.call("metrics")["text"])
    assert seen["gemmd_runner_up", ""] == 0
    assert seen["gemmd_runner_deaths_total", 'reason="crashed"'] == 1
    assert seen["gemmd_runner_deaths_total", 'reason="hung"'] == 0


def test_waits_for_a_lease_are_counted(daemon):
    d = daemon()
    problem = {"op": "custom:mine", "shape": 1}
    with d.connect() as first, d.connect() as second:
        assert first.call("acquire", problem=problem)["outcome"] == "lease"
        waiting = second.send("acquire", problem=problem)
        while samples(d.call("metrics")["text"])["gemmd_lease_waiting", 'by="acquire"'] != 1:
            time.sleep(0.01)
        first.call("release", problem=problem)
        assert second.wait(waiting)["outcome"] == "lease"
        seen = samples(d.call("metrics")["text"])
    assert seen["gemmd_lease_waits_total", 'by="acquire"'] == 1
    assert seen["gemmd_lease_waiting", 'by="acquire"'] == 0


# ---- the texts -------------------------------------------------------------------------------------------------------

def test_both_formats_have_the_same_samples(daemon):
    d = daemon()
    d.call("tune", problem=PROBLEM)
    with d.connect() as c:
        c.call("get", problem=PROBLEM)
        openmetrics, text = (c.call("metrics", openmetrics=flag)["text"] for flag in (True, False))
    assert set(samples(openmetrics)) | {("gemmd_requests_total", 'method="metrics",result="later"')} == set(samples(text))
    types = check_openmetrics(openmetrics)
    for name, kind in types.items():
        assert f"# TYPE {name}{'_total' if kind == 'counter' else ''} {kind}\n" in text
        if kind == "counter":
            assert re.search(rf"^# HELP {name} .*a restart sets it to 0\.$", openmetrics, re.M), name
    if PROMTOOL:
        promtool("check", "metrics", text=text)


class Host:
    """A host's runtime folder with several daemons. Root's folder is the system's, so root starts them as nobody."""

    def __init__(self, folder):
        self.folder, self.run, self.running = folder, folder / "run" / "gemmd", []
        self.run.mkdir(parents=True, mode=0o700)
        self.user = {}
        if os.geteuid() == 0:
            self.user = {"user": 65534, "group": 65534, "extra_groups": []}
            folder.chmod(0o755)
            for path in (self.run, self.run.parent):
                os.chown(path, 65534, 65534)
            (folder / "own").mkdir()
            os.chown(folder / "own", 65534, 65534)
        else:
            (folder / "own").mkdir()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("GEMMD_")}
        self.env["XDG_RUNTIME_DIR"] = str(self.run.parent)

    def start(self, name, device):
        own = self.folder / "own"
        log = (self.folder / f"{name}.log").open("w")
        process = subprocess.Popen(
            [GEMMD, "--device", device, "--socket", self.run / f"{name}.sock", "--database", own / "db",
             "--cache-dir", own / "cache", "--runner", RUNNER], env=self.env, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, **self.user)
        self.running.append(process)
        while not (self.run / f"{name}.sock").exists():
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()
            time.sleep(0.01)
        return process

    def ctl(self, *words):
        return subprocess.run([GEMMCTL, *map(str, words)], env=self.env, capture_output=True, text=True,
                              timeout=60 * PATIENCE, **self.user)

    def stop(self):
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait()


@pytest.fixture
def host(folder):
    h = Host(folder)
    yield h
    h.stop()


def test_metrics_of_all_daemons_are_one_text(host, folder):
    assert host.ctl("metrics").returncode == 3
    host.start("a", "cpu")
    host.start("b", SYNTHETIC)
    host.start("c", f"replay:{DATA / 'synthetic-hopper.jsonl'}")
    host.start("again", SYNTHETIC)  # a second daemon of one device has the same labels: they must not come twice
    dead = host.start("dead", "cpu:1")
    dead.kill()
    dead.wait()
    host.env["GEMMD_DEVICE"] = "cpu"  # chooses one daemon for other commands, not for this one
    done = host.ctl("metrics")
    assert done.returncode == 0, done.stderr
    check_openmetrics(done.stdout)
    assert done.stdout.count("gemmd_keys{") == 3
    assert {re.search(r'uuid="([^"]*)"', line)[1] for line in done.stdout.splitlines() if "gemmd_keys{" in line} == {
        "cpu", "replay-synthetic", "replay-synthetic-hopper"}
    up = {key[1]: v for key, v in samples_up(done.stdout)}
    assert up == {f'socket="{host.run}/{n}.sock"': n != "dead" for n in ("a", "again", "b", "c", "dead")}
    assert "dead.sock" in done.stderr and "same device" in done.stderr

    path = folder / "own" / "gemmd.prom"
    for _ in range(2):
        done = host.ctl("metrics", "--textfile", path)
        assert done.returncode == 0 and not done.stdout, done.stderr
        assert path.stat().st_mode & 0o777 == 0o644
        inode, before = path.stat().st_ino, path.read_text()
        assert before.count("gemmd_hits_total{") == 3 and "# EOF" not in before
        opened = path.open()
        assert host.ctl("metrics", "--textfile", path).returncode == 0
        assert path.stat().st_ino != inode and opened.read() == before  # a reader of the old file has the whole old text
    assert [p.name for p in path.parent.iterdir() if "prom" in p.name or "part" in p.name] == ["gemmd.prom"]
    if PROMTOOL:
        promtool("check", "metrics", text=path.read_text())
    document = json.loads(host.ctl("metrics", "--json").stdout)
    assert document["daemons"] == 5 and document["answered"] == 4


def samples_up(text):
    return [((m[1], m[2]), float(m[3])) for m in SAMPLE.finditer(text) if m[1] == "gemmd_up"]


def answer_with_metrics(daemon, listener, text):
    """Answers a client by what the daemon answers, but for the method metrics."""
    connection = listener.accept()[0]
    unpacker = msgpack.Unpacker(raw=False)
    with connection, daemon.connect() as real:
        while data := connection.recv(65536):
            unpacker.feed(data)
            for _, number, method, params in unpacker:
                result = {"text": text} if method == "metrics" else real.call(method, **params)
                connection.sendall(msgpack.packb([1, number, None, result]))


def test_the_name_of_a_family_is_cut_at_a_whole_character(daemon, folder):
    d, name = daemon(), "n" * 126
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "other.sock"))
        listener.listen()
        threading.Thread(target=answer_with_metrics, daemon=True,
                         args=(d, listener, f"# TYPE {name}\u00e9 gauge\n{name}\u00e9 1\n# EOF\n")).start()
        done = d.ctl("metrics", "--socket", folder / "other.sock")
    assert f"{name}\u00e9 1" in done.stdout.splitlines()


def test_a_textfile_that_cannot_be_written_is_an_error(daemon, folder):
    d = daemon()
    done = d.ctl("metrics", "--textfile", "/proc/none/gemmd.prom", check=False)
    assert done.returncode == 1 and "/proc/none" in done.stderr
    d.stop()
    path = folder / "gemmd.prom"
    done = d.ctl("metrics", "--textfile", path, check=False)
    assert done.returncode == 3 and samples_up(path.read_text())[0][1] == 0


# ---- /metrics --------------------------------------------------------------------------------------------------------

@pytest.fixture
def listening(daemon):
    address = ("127.0.0.1", free_port())
    return daemon(options=["--metrics-listen", f"{address[0]}:{address[1]}"]), address


def test_http_serves_metrics_in_the_format_that_the_client_accepts(listening):
    d, address = listening
    code, head, text = get(address)
    assert code == 200 and "text/plain; version=0.0.4" in head and "# EOF" not in text
    assert samples(text)["gemmd_hits_total", ""] == 0
    assert f"Content-Length: {len(text)}" in head
    code, head, text = get(address, "/metrics?x=1", accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert code == 200 and "application/openmetrics-text" in head
    check_openmetrics(text)
    assert get(address, "/health") [::2] == (200, "ok\ntuning: on\n")
    assert get(address, method="HEAD")[::2] == (200, "")
    assert get(address, "/")[0] == 404
    code, head, _ = get(address, method="POST")
    assert code == 405 and "Allow: GET, HEAD" in head


@pytest.mark.parametrize("request_, code", [
    (b"GET /metrics\r\n\r\n", 400), (b"GET metrics HTTP/1.1\r\n\r\n", 400), (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
    (b"\r\n\r\n", 400), (b"GET /\0 HTTP/1.1\r\n\r\n", 400), (b"\x16\x03\x01\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2000, 431), (b"GET /health HTTP/1.0\r\n\r\n", 200)])
def test_http_refuses_other_requests(listening, request_, code):
    try:
        assert http(listening[1], request_[:4096])[0] == code
    except ConnectionResetError:
        pytest.fail("the answer was lost")


def test_a_request_may_come_byte_by_byte(listening):
    with socket.create_connection(listening[1]) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n":
            s.send(bytes([byte]))
        assert s.recv(100).startswith(b"HTTP/1.1 200")


def test_idle_and_flooding_clients_hold_few_connections_and_no_hit(listening):
    d, address = listening
    d.call("tune", problem=PROBLEM)

    def connections():
        """TCP sockets of gemmd. Files and other sockets come and go with commits, snapshots and runners."""
        proc = pathlib.Path(f"/proc/{d.process.pid}")
        tcp = {f"socket:[{line.split()[9]}]" for line in (proc / "net/tcp").read_text().splitlines()[1:]}
        return sum(os.path.realpath(fd).rpartition("/")[2] in tcp for fd in (proc / "fd").iterdir())

    with d.connect() as c:
        before, silent = connections(), []
        for i in range(300):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(address)
            silent.append(s)
            if i % 10 == 0:  # gemmd answers hits, and holds its few connections, all the time
                assert c.call("get", problem=PROBLEM)["tier"] == "exact"
                assert connections() <= before + 8
        for s in silent[8:]:
            s.close()
        # the first eight say nothing, and are closed at their deadline; then others have their turn
        assert get(address, "/health")[0] == 200
        assert samples(get(address)[2])["gemmd_hits_total", ""] >= 30
        for s in silent:
            s.close()


def test_a_daemon_that_stops_leaves_another_one_s_unix_socket(daemon, folder):
    path = folder / "metrics.http"
    first = daemon(options=["--metrics-listen", path])
    path.unlink()
    (folder / "other").mkdir()
    second = Daemon(folder / "other", SYNTHETIC, ["--metrics-listen", path], cache=first.cache).start()
    try:
        first.stop()
        assert get(str(path), "/health")[0] == 200
    finally:
        second.stop()
    assert not path.exists()


def test_http_on_a_unix_socket(daemon, folder):
    path = folder / "m" / "metrics.sock"
    path.parent.mkdir()
    d = daemon(options=["--metrics-listen", path])
    assert get(str(path), "/health")[0] == 200 and path.stat().st_mode & 0o777 == 0o666
    d.kill()
    d.start()  # over the stale socket
    assert get(str(path))[0] == 200
    d.stop()
    assert not path.exists()


def refused(folder, address):
    done = subprocess.run([GEMMD, "--device", SYNTHETIC, "--socket", folder / "gemmd.sock", "--database", folder / "x.db",
                           "--cache-dir", folder / "cache", "--runner", RUNNER, "--metrics-listen", address],
                          capture_output=True, text=True, timeout=60 * PATIENCE)
    return done.returncode, done.stderr.strip().splitlines()[-1]


def test_an_address_in_use_ends_the_start_with_a_sentence(folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, said = refused(folder, address)
        assert code == 75 and f"{address} is in use" in said
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "taken"))
        other.listen()
        code, said = refused(folder, folder / "taken")
        assert code == 75 and "in use" in said
    (folder / "file").write_text("mine")
    assert refused(folder, folder / "file")[0] == 75 and (folder / "file").read_text() == "mine"
    code, said = refused(folder, folder / "nowhere" / "m")
    assert code == 1 and "nowhere" in said
    code, said = refused(folder, folder / "gemmd.metrics.sock")
    assert code == 2 and "take" in said


@pytest.mark.parametrize("address, said", [
    ("0.0.0.0:9400", "public:0.0.0.0:9400"), ("10.1.2.3:9400", "other hosts"), ("[::]:9400", "other hosts"),
    ("9400", "no address"), ("127.0.0.1", "no address"), ("127.0.0.1:0", "no address"), ("127.0.0.1:65536", "no address"),
    ("::1:9400", "no numeric address"), ("[127.0.0.1]:9400", "no numeric address"), ("gpu1:9400", "no numeric address"),
    ("/" + "x" * 200, "socket path"), ("[]:1", "no numeric address"), (":1", "no numeric address")])
def test_bad_addresses_are_refused(folder, address, said):
    code, sentence = refused(folder, address)
    assert code == 2 and said in sentence


def test_a_public_address_needs_its_word(daemon):
    port = free_port()
    daemon(options=["--metrics-listen", f"public:0.0.0.0:{port}"])
    assert get(("127.0.0.1", port), "/health")[0] == 200
