# SPDX-License-Identifier: Apache-2.0
"""Texts under keys in gemmd's database, for caches of other tuners: values of an op `custom:<name>`, of
up to some KB each, with a lease for each key.

A row's config holds 511 bytes. A short text is the row's `text`. A longer text travels compressed, in
parts that are rows of the op `custom:<name>.part`; the key's own row names the parts by the hash of
the text, so that parts of two writers never mix. The own row is written last.

No method raises an error of gemmd: without a daemon, libgemmd or room, a text is unknown, a write is
dropped, and a process gives one warning. A daemon that did not answer is left alone for QUIET_S."""
import base64
import hashlib
import os
import threading
import time
import warnings
import zlib

from gemmd.client import Client
from gemmd.configs import write_config
from gemmd.errors import Deadline, GemmdError, Unreachable, invalid

QUIET_S = 30.0
CONFIG_BYTES_MAX = 511
PART_CHARS = 480  # of base85; with the field's name and quotes below CONFIG_BYTES_MAX
PARTS_MAX = 64
BEGINNING_CHARS = 80  # of a long text, for people who list rows; a character has up to 4 bytes
_of_thread = threading.local()  # this thread's Texts: a waiting call blocks only its own thread's Client
_quiet_until = {}  # {device: until when its daemon is not asked}
_warned = False


def do_not_warn():
    """Silences this process: its parent gives the same warning."""
    global _warned
    _warned = True


def _warn(error, consequence):
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"gemmd: {error}; {consequence} (this is said once)", RuntimeWarning, stacklevel=2)


# ---- a text as configs ---------------------------------------------------------------------------

def split(text):
    """The config of the key's own row; for a long text also its id (else None) and its parts' configs."""
    whole = {"text": text}
    if "\0" not in text and len(write_config(whole).encode()) <= CONFIG_BYTES_MAX:
        return whole, None, []
    data = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    parts = [{"text": data[i:i + PART_CHARS]} for i in range(0, len(data), PART_CHARS)]
    if len(parts) > PARTS_MAX:
        raise invalid("put", f"the value has {len(text)} characters, {len(parts)} parts; {PARTS_MAX} parts fit")
    name = _id_of(text)
    beginning = " ".join(text.replace("\0", " ").split())[:BEGINNING_CHARS]
    return {"id": name, "parts": len(parts), "begins": beginning}, name, parts


def join(name, parts):
    """The text that split() cut into `parts`; None when these are not the parts of the text `name`."""
    try:
        text = zlib.decompress(base64.b85decode("".join(parts))).decode()
    except (ValueError, zlib.error):
        return None
    return text if _id_of(text) == name else None


def _id_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ---- texts of an op ------------------------------------------------------------------------------

class Texts:
    """The texts of the op custom:<name>, over a Client of its own: leases end with this object. The
    newest texts answer, also in a job with $GEMMD_GENERATION or $GEMMD_LOCK. device: as for a
    Client. consequence: ends the warning, as in "Helion tunes by itself"."""

    def __init__(self, name, consequence, device=None):
        self.name, self.consequence, self.device = name, consequence, device
        self._client = None

    def _try(self, call):
        """Returns call(client), or None without a daemon, libgemmd or room."""
        if time.monotonic() < _quiet_until.get(self.device, 0.0):
            return None
        try:
            self._client = self._client or Client(device=self.device, lazy=True, generation="")
            return call(self._client)
        except (GemmdError, OSError) as e:  # OSError: no libgemmd
            if not isinstance(e, GemmdError) or isinstance(e, (Deadline, Unreachable)):
                _quiet_until[self.device] = time.monotonic() + QUIET_S
            _warn(e, self.consequence)
            return None

    def _problem(self, key):
        return {"op": f"custom:{self.name}", "key": key}

    def _part(self, name, number):
        return {"op": f"custom:{self.name}.part", "id": name, "part": number}

    def _join(self, client, config):
        if isinstance(config.get("text"), str):
            return config["text"]
        name, count = config.get("id"), config.get("parts")
        if not (isinstance(count, int) and 0 < count <= PARTS_MAX):
            return None
        rows = _known(client, [self._part(name, number) for number in range(count)])
        return join(name, [str(row.get("text")) for row in rows]) if all(rows) else None

    def read(self, key):
        """The text of a key; None: unknown. Waits for no other process."""
        def call(client):
            config, = _known(client, [self._problem(key)])
            return config and self._join(client, config)
        return self._try(call)

    def acquire(self, key, lease_ms, deadline_ms=0):
        """The text of a key. None: the caller has the lease, makes the text, and ends by write() or release(). Waits
        while another process holds the key's lease, for deadline_ms (0: no limit). Then, and
        without gemmd, None comes without a lease. A lease ends after lease_ms, with this object, or
        with the process."""
        def call(client):
            try:
                asked = client.acquire(_write_problem(self._problem(key)), lease_ms=lease_ms, deadline_ms=deadline_ms)
            except Deadline:
                if not deadline_ms or not client.reaches_daemon():
                    raise  # the daemon hangs
                return None  # gemmd was late to answer "held"
            return self._join(client, asked.answer.config) if asked.outcome == "hit" else None
        return self._try(call)

    def write(self, key, text):
        """Stores the text of a key, and ends the lease."""
        def call(client):
            row, name, parts = split(text)
            for number, part in enumerate(parts):
                client.put(_write_problem(self._part(name, number)), part)
            client.put(_write_problem(self._problem(key)), row)
        self._try(call)

    def release(self, key):
        """Gives up the lease, if there still is one."""
        self._try(lambda client: client.release(_write_problem(self._problem(key))))

    def newest(self, count):
        """The texts written last, at most `count`, the newest first: of this user's rows and of shared rows."""
        def call(client):
            rows = client.list("best", op=f"custom:{self.name}", sort="-generation", limit=count)
            ours = [row["config"] for row in rows if row["problem"].get("user") in (None, os.getuid())]
            return [text for text in (self._join(client, config) for config in ours) if text is not None]
        return self._try(call) or []


def _write_problem(problem):
    """A problem as text."""
    return f"{problem['op']} " + write_config({name: v for name, v in problem.items() if name != "op"})


def _known(client, problems):
    """The config of each problem's row, or None. Asks the daemon itself: in a job with a lock file,
    Client.get answers from the file."""
    answers = client.call("get_many", {"problems": problems, "wait": "cached"})["answers"]
    return [answer.get("config") for answer in answers]


def of_thread(name, consequence, device):
    """The Texts of this thread and device, made at first use and kept."""
    kept = vars(_of_thread).setdefault("texts", {})
    if (name, device) not in kept:
        kept[name, device] = Texts(name, consequence, device)
    return kept[name, device]
