"""Where many independent things run: in this process, or on the machines of a Ray or Dask cluster.

    engine.use("ray")                  # the setting ``engine`` of a notebook
    at_work = engine.remote(function)  # None: it runs here
    for results in at_work(units):     # a list for each round, in the order of the units
        ...

No result depends on it. A function is pickled with all that it holds and made again in each process of the
cluster; results come in the order of their units; files of results are written by the process that asked, and
by no other. A machine that is lost costs time alone: what it had not given back is computed elsewhere.

The cluster is the one that Ray and Dask find by themselves (``RAY_ADDRESS``, ``DASK_SCHEDULER_ADDRESS``),
else one on this machine. All its machines need this environment and, where models are trained, the same
folder of results.
"""

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from inspect import ismethod
from io import BytesIO
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pwagents import portable
from pwagents.errors import SettingsError
from pwagents.portable import one_core

if TYPE_CHECKING:
    from joblib import Parallel

Engine = Literal["local", "ray", "dask"]
U = TypeVar("U")
R = TypeVar("R")
Remote = Callable[[Sequence[U]], Iterator[list[R]]]

ROUNDS = 8  # of a run: what one of them gives back is stored before the next begins
_LOCK, _CACHED = type(threading.Lock()), type(lru_cache(len))
_engine: Engine = "local"


class StaysHere(Exception):
    """What is to be pickled belongs to this process; the message says why. What holds it runs here."""


def use(engine: Engine) -> None:
    """Let an engine run what this process asks for, from now on.

    Raises:
        SettingsError: it is not installed.
    """
    global _engine
    package = {"dask": "distributed"}.get(engine, engine)
    if engine != "local" and find_spec(package) is None:
        raise SettingsError(f"engine {engine!r}: {package} is not installed; pip install -e .[{engine}]")
    _engine = engine


def remote(function: Callable[[U], R]) -> "Remote[U, R] | None":
    """``function`` on each unit, on the cluster: units -> results by rounds; None where it runs here.

    What ``function`` raises ends the run, and the results of its round are lost.
    """
    if _engine == "local":
        return None
    try:
        pickled = _pickled(function)
    except StaysHere as reason:
        print(f"Not for the engine {_engine}: {reason}.")
        return None
    return lambda units: _rounds(pickled, units, *_cluster(_engine))


def beside(function: Callable[[U], R], units: Sequence[U]) -> list[R]:
    """``function`` on each unit, in their order, where a unit takes minutes.

    On the cluster; without one on the cores of this machine (of which LOKY_MAX_CPU_COUNT may allow fewer): a
    process each, which computes on one core, and this one takes its share. What ``function`` raises ends them
    all, once this process is through with the unit at hand.
    """
    at_work = remote(function)
    if at_work is not None:
        return [result for results in at_work(units) for result in results]
    from joblib import cpu_count

    processes = min(cpu_count(), len(units))
    if _engine == "local" and processes > 1:
        try:
            return _shared_out(function, _pickled(function), units, processes)
        except StaysHere:
            pass
    return [function(unit) for unit in units]


def _shared_out(function: Callable[[U], R], pickled: bytes, units: Sequence[U], processes: int) -> list[R]:
    """Every so many-th unit in this process, the others in further ones; each computes on one core."""
    from joblib.externals.loky import ProcessPoolExecutor  # the reusable one is joblib's own

    shares = [units[i::processes] for i in range(processes)]
    others = ProcessPoolExecutor(max_workers=processes - 1)
    try:
        elsewhere = [others.submit(_call_on_one_core, pickled, share) for share in shares[1:]]
        here = []
        for unit in shares[0]:
            with one_core():
                here.append(function(unit))
            for share in elsewhere:
                if share.done():
                    share.result()  # raises what it raised
        made = [here, *(share.result() for share in elsewhere)]
    except BaseException:
        others.shutdown(kill_workers=True)
        raise
    others.shutdown()
    return [made[i % processes][i // processes] for i in range(len(units))]


def _rounds(pickled: bytes, units: Sequence[U], parallel: "Parallel", jobs: int) -> Iterator[list[R]]:
    from joblib import delayed

    sent = _sent(pickled)
    size = max(1, ceil(len(units) / (ROUNDS * jobs)))
    shares = [units[i : i + size] for i in range(0, len(units), size)]
    for i in range(0, len(shares), jobs):
        given_back = parallel(delayed(_call)(sent, share) for share in shares[i : i + jobs])
        yield [result for results in given_back for result in results]


def _sent(pickled: bytes) -> Any:
    """What each share of units is sent with. Ray keeps the bytes once on each machine; for Dask, whose kept
    data are lost with their machine, they go along."""
    if _engine == "dask":
        return pickled
    import ray

    return ray.put(pickled)


def _call(sent: Any, share: Sequence[U]) -> list[R]:
    """The results of some units, in a process of the cluster."""
    if not isinstance(sent, bytes):
        import ray

        sent = ray.get(sent)
    return [_unpickled(sent)(unit) for unit in share]


def _call_on_one_core(pickled: bytes, share: Sequence[U]) -> list[R]:
    with one_core():
        return _call(pickled, share)


@lru_cache(maxsize=2)
def _unpickled(pickled: bytes) -> Callable:
    """The function, made once a process."""
    return pickle.loads(pickled)


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

    file = BytesIO()
    Pickler(file).dump(function)
    return file.getvalue()


@cache
def _cluster(engine: Engine) -> "tuple[Parallel, int]":
    """Joblib's way to the cluster, and how much runs there at once.

    It is kept until this process ends, so that the cluster's processes keep what they have made.
    """
    from joblib import Parallel, effective_n_jobs, parallel_config

    # As here, and before numpy and torch are loaded there.
    variables = {name: os.environ[name] for name in portable.VARIABLES if name in os.environ}
    variables |= {portable.SWITCH: os.environ.get(portable.SWITCH, "1")}
    options = (_ray if engine == "ray" else _dask)(variables)
    with parallel_config(backend=engine, n_jobs=-1, **options):
        return Parallel().__enter__(), effective_n_jobs(-1)


def _ray(variables: dict[str, str]) -> dict[str, Any]:
    import ray
    from ray.util.joblib import register_ray

    if not ray.is_initialized():
        ray.init()
    register_ray()
    # Processes of a machine that is lost start anew on another one, which does their share again.
    again = {"max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    return {"ray_remote_args": {**again, "runtime_env": {"env_vars": variables}}}


def _dask(variables: dict[str, str]) -> dict[str, Any]:
    from distributed import Client
    from distributed.diagnostics.plugin import Environ

    client = Client()
    client.register_plugin(Environ(variables))
    return {"client": client}
