# SPDX-License-Identifier: Apache-2.0
"""gemmd.triton on configs that are hard to write: each is timed once, and is the answer from then
on; and on threads. Without Triton: a stub stands for Triton."""
import sys
import threading
import types

import pytest

import gemmd
from triton_stand_in import forget_gemmd

PROBLEM = "custom:triton kernel=mine"


class Config:
    def __init__(self, ms, **kwargs):
        self.ms, self.kwargs = ms, kwargs

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": 4}


class Tuner:
    """Has the members of Triton's autotuner that a Timer uses."""
    nargs, do_bench = {}, None

    def __init__(self):
        self.timed = []

    def _bench(self, *_, config, **__):
        self.timed.append(config)
        return [config.ms] * 3

    def pre_hook(self, *_, **__):
        pass

    def prune_configs(self, kwargs):
        return []


class Runner(Tuner):
    """Keeps a call's arguments in the tuner during the call, as the decorator does."""

    def __init__(self):
        super().__init__()
        self.configs, self.cache, self.seen = [Config(2.0, x=1), Config(1.0, x=2)], {}, []

    def prune_configs(self, kwargs):
        return self.configs

    def run(self, n):
        self.nargs = {"n": n}
        if n not in self.cache:
            self.cache[n] = self.configs[0]
        self.seen.append((n, self.nargs, self.cache[n].ms))
        self.nargs = None


@pytest.fixture
def gt(monkeypatch):
    """gemmd.triton, imported over a stub of Triton; both modules are removed after the test."""
    put_in_place(monkeypatch, "3.2.0")
    import gemmd.triton as module
    yield module
    forget_gemmd(monkeypatch)


def put_in_place(monkeypatch, version):
    triton = types.ModuleType("triton")
    triton.__version__ = version
    triton.autotune = lambda configs, key: lambda fn: Runner()
    monkeypatch.setitem(sys.modules, "triton", triton)
    forget_gemmd(monkeypatch)


@pytest.mark.no_library
def test_a_triton_that_is_too_old_is_told(monkeypatch):
    """The import fails with Triton 3.0 and 3.1, which have another autotuner."""
    put_in_place(monkeypatch, "3.1.0")
    with pytest.raises(ImportError, match="needs Triton 3.2 or newer, and this is 3.1.0"):
        import gemmd.triton  # noqa: F401


def decide(gt, g, problem, configs):
    tuner = Tuner()
    return gt.decide(g, problem, configs, gt.Timer(tuner, (), {}), 0)[0], tuner.timed


def hard_configs():
    values = ["", "a,b", "a b", 'a"b', "64", 64, 64.0, True, 1, "True", float("inf"), -0.0,
              (1, 2), "(1,2)", None, 2 ** 70, "\\x", "é\n"]
    return [Config(float(100 + i), x=value) for i, value in enumerate(values)]


def test_whichever_wins_is_the_answer_from_then_on(gt, cpu):
    with gemmd.Client(cpu.socket) as g:
        for n in range(len(hard_configs())):
            configs = hard_configs()
            best = configs[n]
            best.ms = 1.0
            config, timed = decide(gt, g, f"{PROBLEM} n={n}", configs)
            assert timed == configs and config is best
            config, timed = decide(gt, g, f"{PROBLEM} n={n}", configs)
            assert timed == [] and config is best, best.kwargs


def test_what_was_timed_before_is_not_timed_again(gt, cpu):
    configs = hard_configs()
    with gemmd.Client(cpu.socket) as g:
        decide(gt, g, PROBLEM, configs[:-1])
        config, timed = decide(gt, g, PROBLEM, configs)
    assert timed == [configs[0], configs[-1]] and config is configs[0]  # the best known config is timed again


def test_configs_that_gemmd_cannot_tell_apart_are_timed_once(gt, cpu):
    twins = [Config(2.0, x=(1, 2)), Config(1.0, x="(1, 2)"), Config(3.0, x=0)]
    with gemmd.Client(cpu.socket) as g:
        config, timed = decide(gt, g, PROBLEM, twins)
    assert config is twins[0] and timed == [twins[0], twins[2]]


@pytest.mark.no_library
def test_without_a_library_triton_tunes_by_itself(gt, monkeypatch, tmp_path):
    monkeypatch.setattr(gemmd.ffi, "_shared", None)
    monkeypatch.setenv("GEMMD_LIBRARY", str(tmp_path / "libgemmd.so"))
    cache = gt.SharedCache(Tuner(), None, 0)
    cache.call.args, cache.call.kwargs = (), {}
    with pytest.warns(RuntimeWarning, match="libgemmd.so.*Triton tunes by itself"):
        assert "a key" not in cache


@pytest.mark.no_library
def test_an_error_of_the_kernel_s_own_is_not_taken_for_gemmd_s(gt, monkeypatch):
    """No ptxas, say."""
    def fails(*_):
        raise FileNotFoundError("ptxas")

    monkeypatch.setattr(gt, "_client", lambda *_: None)
    monkeypatch.setattr(gt, "problem_of", lambda *_: PROBLEM)
    monkeypatch.setattr(gt, "decide", fails)
    cache = gt.SharedCache(Tuner(), None, 0)
    cache.call.args, cache.call.kwargs = (), {}
    with pytest.raises(FileNotFoundError, match="ptxas"):
        "a key" in cache


def test_an_answer_of_another_config_is_told(gt, cpu):
    answer = types.SimpleNamespace(config={"x": 5}, config_text="x=5")
    with pytest.raises(gemmd.GemmdError, match="x=5, is none of the kernel's configs"):
        gt.find_answer(hard_configs(), answer)


@pytest.mark.no_library
def test_nothing_is_asked_or_timed_in_a_capture(gt, monkeypatch):
    config, capturing = Config(1.0, x=1), [True]
    cuda = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: capturing[0])
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    cache = gt.SharedCache(Tuner(), None, 100)
    cache.call.args = cache.call.kwargs = {}
    monkeypatch.setattr(gt, "_client", lambda *_: None)
    monkeypatch.setattr(gt, "_device", lambda: None)
    monkeypatch.setattr(gt, "problem_of", lambda *_: "custom:x")
    monkeypatch.setattr(gt, "decide", lambda *_: pytest.fail("gemmd is asked") if capturing[0] else (config, True))
    assert "key" not in cache
    capturing[0] = False
    assert "key" in cache
    cache.stopgaps["key"], capturing[0] = 0.0, True
    assert "key" in cache and "key" in cache.stopgaps


def test_a_problem_of_any_text(gt, cpu, monkeypatch):
    """Values and hashes may look like numbers, or have quotes."""
    monkeypatch.setattr(gemmd.triton_rows, "source_hash", lambda fn: "1e5")
    gt.triton.__version__ = "3.1"
    tuner = types.SimpleNamespace(nargs={}, arg_names=["s"], keys=["s"], configs=[], fn=lambda s: s,
                                  base_fn=types.SimpleNamespace(__name__="mine"))
    problem = gt.problem_of(tuner, ('a "b" \\ é\n',), {"s": 'a "b" \\ é\n'})
    with gemmd.Client(cpu.socket) as g:
        assert g.acquire(problem).outcome == "lease"
        g.put(problem, {"x": 1}, 1.0)
        row, = g.list("best")
    assert row["problem"]["source"] == "1e5" and row["problem"]["triton"] == "3.1"
    assert row["problem"]["arguments"] == 's=a "b" \\ é\n'


def test_the_daemon_of_the_device_that_triton_launches_on_is_asked(gt, cpu, monkeypatch):
    """Triton's current device decides, though the thread has no CUDA context yet; each device's daemon has its own
    Client."""
    current, asked = [0], []
    active = types.SimpleNamespace(
        get_current_target=lambda: types.SimpleNamespace(backend="cuda", arch=90),
        get_current_device=lambda: current[0])
    gt.triton.runtime = types.SimpleNamespace(driver=types.SimpleNamespace(active=active))

    class Asked(gemmd.Client):
        def __init__(self, socket, device, lazy):
            asked.append(device)
            super().__init__(socket=socket, lazy=lazy)

    monkeypatch.setattr(gt, "Client", Asked)
    kernel = shared(gt, cpu, monkeypatch)
    kernel.run(5)
    current[0] = 1
    kernel.run(6)
    del gt.triton.runtime
    kernel.run(7)
    assert asked == ["cuda:0", "cuda:1", None]


def test_what_a_kernel_was_called_with_is_kept_no_longer(gt, cpu, monkeypatch):
    kernel = shared(gt, cpu, monkeypatch)
    called_with = vars(kernel.cache.call)
    during, run = [], Runner.prune_configs
    monkeypatch.setattr(Runner, "prune_configs",
                        lambda self, kwargs: during.append(dict(called_with)) or run(self, kwargs))
    kernel.run(8)
    assert during[0]["args"] == (8,) and called_with == {}


def shared(gt, cpu, monkeypatch):
    """A kernel under the decorator, with a known key."""
    monkeypatch.setattr(gt, "problem_of", lambda tuner, key, *_: f"{PROBLEM} n={key}")
    kernel = gt.autotune([], [], gemmd_socket=str(cpu.socket))(None)
    kernel.run(1)
    return kernel


def test_threads_launch_while_one_waits_for_another_process(gt, cpu, monkeypatch):
    kernel, other = (shared(gt, cpu, monkeypatch) for _ in range(2))
    with gemmd.Client(cpu.socket) as holder:
        assert holder.acquire(f"{PROBLEM} n=2").outcome == "lease"
        waits = threading.Thread(target=kernel.run, args=(2,))
        waits.start()
        while not sum(user["waiting"] for user in cpu.status()["users"]):
            assert waits.is_alive()
        launches = [threading.Thread(target=run, args=(n,), daemon=True)
                    for run, n in ((kernel.run, 1), (other.run, 1), (other.run, 3), (kernel.run, 4))]
        for launch in launches:
            launch.start()
        for launch in launches:
            launch.join(10)
        stuck = sum(launch.is_alive() for launch in launches)
        holder.record(f"{PROBLEM} n=2", [{"config": {"x": 2, "num_warps": 4}, "time_us": 2.0}])
        holder.put(f"{PROBLEM} n=2", {"x": 1, "num_warps": 4}, 1.0)
        waits.join()
    assert stuck == 0
    assert kernel.seen[-1] == (2, {"n": 2}, 2.0)  # the job's own arguments again, and the other job's winner
    assert sorted(n for n, *_ in kernel.seen + other.seen) == [1, 1, 1, 1, 2, 3, 4]
