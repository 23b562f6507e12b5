# SPDX-License-Identifier: Apache-2.0
"""gemmd-fleet and a server whose disk is full. A library in the server's processes lets no file of a folder grow: writes
fail with ENOSPC, as without room. This needs no file system of its own, and no privileges."""
import collections
import contextlib
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from hosts import until
from server import Server

FULL = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* 1: the file would grow, and the disk of its folder (base or pg_wal) is full: TEST_FULL_DISK/FOLDER exists. */
static int is_full(int fd, long end)
{
    static const char *const folders[] = {"base", "pg_wal"};
    char name[64], path[4096], part[64];
    struct stat st;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(name, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = 0;
    for (int i = 0; i < 2; i++) {
        char flag[4096];
        snprintf(part, sizeof(part), "/%s/", folders[i]);
        snprintf(flag, sizeof(flag), "%s/%s", getenv("TEST_FULL_DISK"), folders[i]);
        if (strstr(path, part) && access(flag, F_OK) == 0 && fstat(fd, &st) == 0 && end > st.st_size) {
            return 1;
        }
    }
    return 0;
}

static long bytes_of(const struct iovec *v, int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (long)v[i].iov_len;
    }
    return sum;
}

ssize_t pwrite(int fd, const void *data, size_t n, long at)
{
    return is_full(fd, at + (long)n) ? (errno = ENOSPC, -1) : syscall(SYS_pwrite64, fd, data, n, at);
}
ssize_t pwritev(int fd, const struct iovec *v, int n, long at)
{
    return is_full(fd, at + bytes_of(v, n)) ? (errno = ENOSPC, -1) : syscall(SYS_pwritev, fd, v, (long)n, at, 0L);
}
int posix_fallocate(int fd, long at, long n)
{
    return is_full(fd, at + n) ? ENOSPC : syscall(SYS_fallocate, fd, 0, at, n) ? errno : 0;
}
ssize_t pwrite64(int fd, const void *data, size_t n, long at) { return pwrite(fd, data, n, at); }
ssize_t pwritev64(int fd, const struct iovec *v, int n, long at) { return pwritev(fd, v, n, at); }
int posix_fallocate64(int fd, long at, long n) { return posix_fallocate(fd, at, n); }
"""
NO_ROOM = "No space left on device"


class Disk:
    def __init__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-disk-", dir="/tmp"))
        self.home.chmod(0o755)  # the server's user reads here
        (self.home / "full.c").write_text(FULL)
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", self.home / "full.so", self.home / "full.c"], check=True)
        self.env = {"LD_PRELOAD": str(self.home / "full.so"), "TEST_FULL_DISK": str(self.home)}

    def fill(self, folders):
        for name in folders:
            (self.home / name).touch()

    def make_room(self):
        for name in ("base", "pg_wal"):
            (self.home / name).unlink(missing_ok=True)


@pytest.fixture
def disk():
    made = Disk()
    yield made
    shutil.rmtree(made.home)


def tune(host, m):
    """A search of the host: with the fleet's lease, or alone after a while."""
    until(f"the host may tune key {m}", lambda: host.do("ask", m, 500) in ("leased", "alone"))
    assert host.do("tune", m, 5.0) == "done"
    assert host.do("unlease", m) == "done"
    assert host.best(m)[:2] == ("tuned", 5.0)


def check_published(server, host, keys):
    """Every key is published, and at the server once."""
    for m in keys:
        until(f"key {m} is published: {host.said()[-500:]}", lambda m=m: host.numbers(m))
    times = collections.Counter(server.psql("SELECT replace(key::text, '-', '') FROM fleet.best").splitlines())
    assert times == {host.key(m): 1 for m in keys}
    assert "not the one of before" not in host.said() and "failed over" not in host.said()


def test_rows_wait_for_room_in_the_servers_tables(disk, host):
    server = Server(env=disk.env)
    try:
        a = host("a").link(server.conninfo(), "--fleet-ms", 500).wait_attached()
        tune(a, 1)
        until("the first row is published", lambda: a.numbers(1))
        disk.fill(["base"])
        keys = [1]
        while NO_ROOM not in a.said():  # the tables' pages have room for some rows
            assert len(keys) < 500
            keys.append(len(keys) + 1)
            tune(a, keys[-1])
        assert 'could not extend file "base/' in a.said() and "this host goes on alone" in a.said()
        for m in range(len(keys) + 1, len(keys) + 6):
            tune(a, m)
            keys.append(m)
        assert a.numbers(keys[-1]) == []
        disk.make_room()
        check_published(server, a, keys)
    finally:
        server.close()


def test_a_server_that_ends_without_room_for_its_log_loses_no_row(disk, host):
    server = Server(env=disk.env)
    try:
        a = host("a").link(server.conninfo(), "--fleet-ms", 500).wait_attached()
        tune(a, 1)
        until("the first row is published", lambda: a.numbers(1))
        disk.fill(["base", "pg_wal"])
        for _ in range(4):  # the log's next file cannot be made
            with contextlib.suppress(RuntimeError):
                server.psql("UPDATE fleet.meta SET poll_ms = poll_ms; SELECT pg_switch_wal()")
        until(f"the loss is said: {a.said()}", lambda: "this host goes on alone" in a.said())
        assert NO_ROOM in (server.home / "log").read_text()
        for m in range(2, 12):
            tune(a, m)
        assert len(a.numbers()) == 1
        disk.make_room()
        if not server.runs():
            server.start()
        check_published(server, a, range(1, 12))
    finally:
        server.close()
