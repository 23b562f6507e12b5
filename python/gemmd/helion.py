# SPDX-License-Identifier: Apache-2.0
"""Helion's autotune cache in gemmd's database:

    HELION_AUTOTUNE_CACHE=RemoteAutotuneCache HELION_REMOTE_CACHE_BACKEND=gemmd.helion.Backend

One process tunes a kernel; the other processes of the database wait, and read its result. A process
that ends in the middle of a tuning, or fails to tune, frees the kernel for the next process. Without a
daemon each process tunes by itself, as under Helion's own cache. Helion 1.1 or newer."""
import json
import sys
import threading
import time
import weakref

try:
    from helion.autotuner.local_cache import get_helion_cache_dir
    from helion.autotuner.remote_cache import RemoteCacheBackend
except ImportError as e:
    raise ImportError(f"gemmd.helion needs Helion 1.1 or newer ({e})") from e

from gemmd.models import device_of_torch
from gemmd.texts import Texts

NAME, CONSEQUENCE = "helion", "Helion tunes by itself"
LEASE_MS = 3600000  # the longest lease that gemmd gives
LISTED_MAX = 256
WATCH_S = 1.0  # seconds between two looks whether a tuning still runs
_of_thread = threading.local()  # this thread's open leases: a second get() of a key goes on with the first's lease


def _new_texts():
    return Texts(NAME, CONSEQUENCE, device_of_torch())


def _is_entry(text):
    """True for an entry that Helion can read. Helion would let the error of a bad entry end the job."""
    try:
        return isinstance(json.loads(json.loads(text)["config"]), dict)
    except (KeyError, TypeError, ValueError):
        return False


def _local_entry(key):
    """The entry in Helion's own folder, or None. With such an entry Helion neither tunes nor calls put()."""
    try:
        text = (get_helion_cache_dir() / f"{key}.best_config").read_text()
    except (OSError, UnicodeError):
        return None
    return text if _is_entry(text) else None


def _frames(frame):
    """Yields a frame, the frame of its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _find_cache():
    """Returns the calling cache and its outermost frame, which runs until the tuning ends; or None and None."""
    cache, outermost = None, None
    for frame in _frames(sys._getframe(1)):
        owner = frame.f_locals.get("self")
        if cache is None and hasattr(getattr(owner, "kernel", None), "env"):
            cache = owner
        if cache is not None and owner is not cache:
            break
        outermost = frame if cache is not None else None
    return cache, outermost


def _ranks_tune_together(cache):
    """True when the cache's kernel belongs to a process group. The ranks of the group tune together,
    in collectives, so no rank may wait for another."""
    return cache is not None and getattr(cache.kernel.env, "process_group_name", None) is not None


def _release_after(frame, texts, key):
    """Releases the lease soon after a frame of this thread has ended. A kept exception, as of a notebook,
    keeps the frame of a failed tuning, and so the Backend. A second try of the thread goes on with the lease."""
    def is_running():
        return any(frame is one for one in _frames(sys._current_frames().get(thread)))

    def watch():
        while is_running():
            time.sleep(WATCH_S)
        if texts.tuning is frame:
            texts.tuning = None
            texts.release(key)

    texts.tuning, thread = frame, threading.get_ident()
    threading.Thread(target=watch, daemon=True).start()


class Backend(RemoteCacheBackend):
    """Helion makes a Backend for each tuning. A lease ends with its tuning."""

    def __init__(self):
        self._texts = None  # the Texts that holds the lease of the key being tuned

    def get(self, key):
        """The entry of a key. None: Helion then tunes the kernel, and calls put()."""
        cache, frame = _find_cache()
        if _ranks_tune_together(cache):
            return self._checked(_new_texts().read(key))
        leases = vars(_of_thread).setdefault("leases", weakref.WeakValueDictionary())
        self._texts = leases.get(key) or _new_texts()
        leases[key] = self._texts
        text = self._checked(self._texts.acquire(key, LEASE_MS))
        if text is None and (text := _local_entry(key)) is not None:
            self._texts.write(key, text)
        if text is not None:
            self._texts = None
        elif frame is not None:
            _release_after(frame, self._texts, key)
        return text

    @staticmethod
    def _checked(text):
        return text if text is not None and _is_entry(text) else None

    def put(self, key, data):
        (self._texts or _new_texts()).write(key, data)
        self._texts = None

    def list(self, max_results=None):
        """Entries for Helion's warm start, the newest first."""
        return [text for text in _new_texts().newest(min(max_results or LISTED_MAX, LISTED_MAX)) if _is_entry(text)]
