"""Where many independent things run: in this process, or by joblib in others, on a Ray or Dask cluster too.

    engine.use("ray")                  # the setting ``engine`` of a notebook
    at_work = engine.remote(function)  # None: it runs here
    for results in at_work(units):     # a list for each round, in the order of the units
        ...

No result depends on it: a function is pickled with all that it holds, and the process that asked writes the
files, but for those of trainings. What a lost machine had not given back is computed elsewhere. The cluster
is the one that Ray and Dask find by themselves (``RAY_ADDRESS``, ``DASK_SCHEDULER_ADDRESS``), else one on
this machine. Its machines need this environment and, where models are trained, the same folder of results.
"""

import io
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from inspect import ismethod
from math import ceil
from typing import Any, Literal

from pwagents import portable
from pwagents.errors import SettingsError, StaysHere
from pwagents.portable import one_core

Engine = Literal["local", "ray", "dask"]
Remote = Callable[[Sequence[Any]], Iterator[list[Any]]]

ROUNDS = 8  # of a run: what one of them gives back is stored before the next begins
_LOCK, _CACHED = type(threading.Lock()), type(lru_cache(len))
in_use: Engine = "local"


def use(engine: Engine) -> None:
    """Let an engine run what this process asks for; a SettingsError where it is not installed."""
    global in_use
    package = {"dask": "distributed"}.get(engine, engine)
    if engine != "local" and find_spec(package) is None:
        raise SettingsError(f"engine {engine!r}: {package} is not installed; pip install -e .[{engine}]")
    in_use = engine


def remote(function: Callable[[Any], Any]) -> Remote | None:
    """Return ``function`` for many units on the cluster, by rounds; None where it runs here.

    What it raises ends the run, and the results of its round are lost.
    """
    if in_use == "local":
        return None
    try:
        pickled = _pickled(function)
    except StaysHere as reason:
        print(f"This runs here, not on the engine {in_use}: {reason}.")
        return None

    def rounds(units: Sequence[Any]) -> Iterator[list[Any]]:
        from joblib import delayed

        parallel, jobs = _cluster(in_use)
        size = max(1, ceil(len(units) / (ROUNDS * jobs)))
        shares = [units[i : i + size] for i in range(0, len(units), size)]
        for i in range(0, len(shares), jobs):
            returned = parallel(delayed(_call)(pickled, share) for share in shares[i : i + jobs])
            yield [result for results in returned for result in results]

    return rounds


def beside(function: Callable[[Any], Any], units: Sequence[Any]) -> list[Any]:
    """Call ``function`` on each unit, in their order, where a unit takes minutes.

    On the cluster; without one on the cores of this machine (of which LOKY_MAX_CPU_COUNT may allow fewer): a
    process each, which computes on one core, and this one takes its share.
    """
    at_work = remote(function)
    if at_work is not None:
        return [result for results in at_work(units) for result in results]
    from joblib import cpu_count
    from joblib.externals.loky import ProcessPoolExecutor

    processes = min(cpu_count(), len(units)) if in_use == "local" else 1
    try:
        pickled = _pickled(function) if processes > 1 else b""
    except StaysHere:
        processes = 1
    if processes < 2:
        return [function(unit) for unit in units]

    # The others begin at once and are waited for last: meanwhile this process, which holds all that a unit
    # needs, takes its share. (joblib.Parallel would not start a single other one.)
    threads = {name: "1" for name in portable.VARIABLES if name.endswith("NUM_THREADS")}
    others = ProcessPoolExecutor(max_workers=processes - 1, env=threads)
    try:
        elsewhere = [others.submit(_call, pickled, units[i::processes]) for i in range(1, processes)]
        with one_core():
            made = [[function(unit) for unit in units[::processes]]]
        made += [share.result() for share in elsewhere]
    finally:
        others.shutdown(kill_workers=True)
    return [made[i % processes][i // processes] for i in range(len(units))]


def _call(pickled: bytes, share: Sequence[Any]) -> list[Any]:
    """Call a function on some units, in another process."""
    return [_unpickled(pickled)(unit) for unit in share]


_unpickled = lru_cache(maxsize=2)(pickle.loads)  # the function, made once a process


def _pickled(function: Callable) -> bytes:
    """A function and all that it holds; raises :class:`StaysHere`."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, held: Any) -> Any:
            if isinstance(held, _LOCK):  # for the threads of one process: the other has one of its own
                return threading.Lock, ()
            if isinstance(held, _CACHED) and ("<locals>" in held.__qualname__ or ismethod(held.__wrapped__)):
                return cache, (held.__wrapped__,)  # pickle looks for it by a name that it does not have
            return super().reducer_override(held)

    file = io.BytesIO()
    Pickler(file).dump(function)
    return file.getvalue()


@cache
def _cluster(engine: Engine) -> tuple[Any, int]:
    """Joblib's way to the cluster, and how much runs there at once; processes there keep what they made."""
    from joblib import Parallel, effective_n_jobs, parallel_config

    # Numbers there are as here: variables that say how, before numpy and torch are loaded.
    variables = {name: os.environ[name] for name in portable.VARIABLES if name in os.environ}
    variables |= {portable.SWITCH: os.environ.get(portable.SWITCH, "1")}
    if engine == "ray":
        import ray
        from ray.util.joblib import register_ray

        if not ray.is_initialized():
            ray.init()
        register_ray()
        # Processes of a machine that is lost start anew on another one, which does their share again.
        again = {"max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
        options = {"ray_remote_args": {**again, "runtime_env": {"env_vars": variables}}}
    else:
        from distributed import Client
        from distributed.diagnostics.plugin import Environ

        options = {"client": Client()}
        options["client"].register_plugin(Environ(variables))
    with parallel_config(backend=engine, n_jobs=-1, **options):
        return Parallel().__enter__(), effective_n_jobs(-1)
