# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of a test's own: made, started, stopped and killed in the test's folder.

The server listens on a Unix socket in the folder, and on a TCP port when a test asks for the port. PostgreSQL refuses
root, so root's tests run the server as the user postgres. A killed server's processes are children of PID 1, or of this
process (PR_SET_CHILD_SUBREAPER), which reaps them: a zombie postmaster keeps the next postmaster from starting.
"""
import ctypes
import glob
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SQL = ROOT / "fleet" / "sql" / "fleet1.sql"
PR_SET_CHILD_SUBREAPER = 36


def programs():
    """Returns the newest installed PostgreSQL's folder of programs; None: no server is installed. The environment variable
    GEMMD_TEST_POSTGRESQL names the folder of another PostgreSQL."""
    if os.environ.get("GEMMD_TEST_POSTGRESQL"):
        return pathlib.Path(os.environ["GEMMD_TEST_POSTGRESQL"]).resolve()
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda p: int(p.split("/")[4]))
    return pathlib.Path(found[-1]).parent if found else None


def missing():
    """Names a missing program or module; None: the tests can run."""
    if programs() is None:
        return "no PostgreSQL server is installed"
    try:
        import psycopg2  # noqa: F401
    except ImportError:
        return "python3-psycopg2 is not installed"
    return None


def free_port():
    """A TCP port below the range from which clients' ports are drawn."""
    for port in range(20000 + os.getpid() % 8000, 32000):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port")


class Deaf:
    """A proxy that passes on nothing: a port that takes connections, reads nothing, and never answers."""

    def __init__(self, port=None):
        self.listener = socket.create_server(("127.0.0.1", port or free_port()))
        self.port = self.listener.getsockname()[1]
        self.open = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                self.open.append(self.listener.accept()[0])
            except OSError:
                return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # ends accept, which would keep the port
        self.listener.close()
        for s in self.open:
            s.close()


class Server:
    """A cluster with the database gemmd_fleet, its tables, and the roles h1 and h2 (hosts) and boss (admin)."""

    def __init__(self, port=None, settings=(), auth="trust", env=None):
        self.prepare(port, settings, env)
        self.run("initdb", "-A", "trust", "--no-sync", "-U", "postgres", "-D", self.data)
        if auth != "trust":
            hba = f"local all postgres trust\nlocal all all {auth}\nhost all all 127.0.0.1/32 {auth}\n"
            self.as_user(["tee", f"{self.data}/pg_hba.conf"], input=hba.encode(), stdout=subprocess.DEVNULL)
        self.start()
        self.psql("CREATE DATABASE gemmd_fleet", database="postgres")
        self.load(SQL.read_text())
        self.psql("CREATE ROLE h1 LOGIN PASSWORD 'one' IN ROLE gemmd_host; CREATE ROLE h2 LOGIN PASSWORD 'two' IN ROLE gemmd_host;"
                  " CREATE ROLE boss LOGIN PASSWORD 'three' IN ROLE gemmd_fleet_admin")

    def prepare(self, port, settings, env):
        """Makes the server's folder."""
        self.bin = programs()
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-pg-", dir="/tmp"))
        self.port = port or 5432
        self.tcp = port is not None
        self.settings = list(settings)
        self.env = {**os.environ, **(env or {})}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if os.geteuid() == 0:
            os.chown(self.home, pwd.getpwnam("postgres").pw_uid, pwd.getpwnam("postgres").pw_gid)
        os.chmod(self.home, 0o755)

    @property
    def data(self):
        return str(self.home / "data")

    def as_user(self, command, **kwargs):
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *map(str, command)]
        return subprocess.run([str(c) for c in command], check=True, cwd="/", **kwargs)

    def begin(self, command):
        """Starts a program as the server's user."""
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command]
        return subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL)

    def own_file(self, name, content):
        """Writes a file of the server's user, mode 0600."""
        path = self.home / name
        path.write_bytes(content)
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, pwd.getpwnam("postgres").pw_uid, pwd.getpwnam("postgres").pw_gid)

    def run(self, program, *args):
        return self.as_user([self.bin / program, *args], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def start(self):
        settings = {"listen_addresses": "127.0.0.1" if self.tcp else "", "unix_socket_directories": str(self.home),
                    "port": self.port, "max_connections": 60, "log_min_messages": "fatal", "shared_buffers": "32MB",
                    "autovacuum": "off", "jit": "off"}
        settings.update(s.split("=", 1) for s in self.settings)
        words = " ".join(f"-c {k}='{v}'" for k, v in settings.items())
        with open("/dev/null", "w", encoding="ascii") as quiet:  # "another server might be running", after a kill
            self.as_user([self.bin / "pg_ctl", "-D", self.data, "-s", "-w", "-o", words, "-l", f"{self.home}/log", "start"],
                         stdout=quiet, stderr=quiet, stdin=subprocess.DEVNULL, env=self.env)

    def postmaster(self):
        """The postmaster's process id; None: the server does not run."""
        try:
            pid = int(pathlib.Path(self.data, "postmaster.pid").read_text().split()[0])
        except FileNotFoundError:
            return None
        return pid if os.path.exists(f"/proc/{pid}") else None

    def runs(self):
        return self.postmaster() is not None

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", self.data, "-s", "-m", mode, "stop")

    def pids(self):
        """The postmaster and all its children."""
        first = self.postmaster()
        children = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def cpu_seconds(self):
        """CPU time of the server's processes, also of ended children."""
        ticks = 0
        for i, pid in enumerate(self.pids()):
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            ticks += int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if i == 0 else 0)
        return ticks / os.sysconf("SC_CLK_TCK")

    def signal(self, number):
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """kill -9 of all processes, as a loss of power; returns when all are gone."""
        pids = self.pids()
        self.signal(signal.SIGKILL)
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            for pid in pids:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
            time.sleep(0.01)

    def close(self):
        if self.runs():
            self.signal(signal.SIGCONT)
            self.kill()
        subprocess.run(["rm", "-rf", str(self.home)], check=False)

    def conninfo(self, user="h1", **more):
        info = {"host": "127.0.0.1" if self.tcp else str(self.home), "port": self.port, "dbname": "gemmd_fleet", "user": user}
        return " ".join(f"{k}={v}" for k, v in {**info, **more}.items())

    def connect(self, user="h1"):
        import psycopg2
        connection = psycopg2.connect(f"host={self.home} port={self.port} dbname=gemmd_fleet user={user}")
        connection.autocommit = True
        return connection

    def psql(self, text, database="gemmd_fleet", user="postgres"):
        """Runs SQL as an admin; returns the output as text."""
        done = subprocess.run([self.bin / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.home), "-p", str(self.port),
                               "-U", user, "-d", database, "-f", "-"], input=text, text=True, capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    load = psql


class Standby(Server):
    """A streaming standby of a server. A commit at the primary does not wait for the standby."""

    def __init__(self, primary):
        self.prepare(None, (), None)
        self.run("pg_basebackup", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", "postgres", "-h", primary.home, "-p", primary.port,
                 "-D", self.data)
        self.start()

    def cut_off(self):
        """Ends the stream: nothing more comes from the primary."""
        self.psql("ALTER SYSTEM SET primary_conninfo = ''", database="postgres")
        self.psql("SELECT pg_reload_conf()", database="postgres")

    def promote(self):
        self.run("pg_ctl", "-D", self.data, "-s", "-w", "promote")


class Host:
    """A host's connection, and the calls of gemmd-fleet, in Python."""

    def __init__(self, server, name, user="h1", stamp="src=1 abi=1 target=cpu compiler=cc", cls="CPU/x/sm1"):
        self.server, self.stamp_name, self.class_name = server, stamp, cls
        self.connection = server.connect(user)
        self.cursor = self.connection.cursor()
        self.hello = self.row("SELECT host, api_min, api_max, epoch::text, timeline, head, scheme, ttl_ms, poll_ms, fsync"
                              " FROM fleet1.hello(%s, 'test')", name)
        self.id = self.hello[0]
        self.stamp, self.cls = self.row("SELECT * FROM fleet1.intern(%s, %s, %s)", self.id, stamp, cls)

    def all(self, sql, *values):
        self.cursor.execute(sql, values)
        return self.cursor.fetchall() if self.cursor.description else []

    def row(self, sql, *values):
        return self.all(sql, *values)[0]

    def want(self, keys, take, host=None):
        return self.all("SELECT kind, replace(k::text, '-', ''), num, r FROM fleet1.want(%s, %s, %s::uuid[], %s)",
                        host or self.id, self.stamp, keys, take)

    def best(self, key, **more):
        return {"key": key, "class": self.class_name, "stamp": self.stamp_name, "source": "tuned", "time_us": 1.5, **more}

    def publish(self, keys, fences=None, known=None, ids=None, host=None, rows=None):
        import json
        import uuid
        rows = rows or [self.best(k) for k in keys]
        return self.all("SELECT verdict, replace(k::text, '-', ''), num FROM fleet1.publish(%s, %s, %s, %s::uuid[], %s::uuid[],"
                        " %s::bigint[], %s::bigint[], %s::jsonb[])", host or self.id, self.stamp, self.cls,
                        ids or [str(uuid.uuid4()) for _ in keys], keys, fences or [None] * len(keys), known or [0] * len(keys),
                        [json.dumps(r) for r in rows])

    def feed(self, after, limit=256):
        return self.all("SELECT num, replace(k::text, '-', ''), source, answers, withdraws, host, name, r"
                        " FROM fleet1.feed(%s, %s, %s, %s)", self.id, after, [self.cls], limit)

    def close(self):
        self.connection.close()


def key(number):
    return f"{number:032x}"
