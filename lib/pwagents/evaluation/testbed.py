"""Load what agents are evaluated on: a world, its shop, tasks and simulated user."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pwagents import engine, portable
from pwagents.agents.offline import FunctionClassifier
from pwagents.data import load_benchmark
from pwagents.data.splits import sample_tasks
from pwagents.embedding import Embedder
from pwagents.errors import SettingsError
from pwagents.llm.make import Models
from pwagents.llm.prompts import OfficialPrompts, official_prompts
from pwagents.results.references import score_references
from pwagents.schema import Protocol, Split, Task, check_choice
from pwagents.settings import BenchmarkNotebook, load_settings
from pwagents.shop.environment import Environment, Shop, Track, UserSimulator
from pwagents.users.llm import make_user


class ShopWorld(NamedTuple):
    """A shop, the tasks that are played there, and what is made from them."""

    folder: Path  # of its embeddings, its index and its recommender
    shop: Shop
    tasks: Sequence[Task]
    prompts: OfficialPrompts  # the published ones if settings name a clone, else ours
    embedder: Embedder  # of what a memory compares
    references: Callable[[], pd.DataFrame]  # of the tasks, computed once
    identify: Callable[[], FunctionClassifier]  # trained once


_kept: dict[tuple, ShopWorld] = {}  # the latest one, for the next agent that this process evaluates


@dataclass(frozen=True)
class Testbed:
    """Where agents are evaluated: shop, tasks and simulated user of notebook 03's settings.

    Attributes:
        world: the shop, the tasks, and what is made from them.
        models: the language models of all roles.
        user: answers in the multi-turn track; None: nobody.
        begin: task -> an environment in which it has begun.
        facts: what decides an episode besides agent and code, for its key.
    """

    settings: BenchmarkNotebook
    track: Track
    world: ShopWorld
    models: Models
    user: UserSimulator | None
    begin: Callable[[Task], Environment]
    facts: Mapping[str, Any]
    protocol: Protocol = "leak_free"
    split: Split = "test"
    seed: int = 0

    def trial(self, number: int) -> "Testbed":
        """Return the same for another trial: user, random memories and replies have a seed of their own."""
        shop, seed, user, texts = self.world.shop, self.settings.seed + number, None, self.world.prompts.texts
        track, protocol, split = self.track, self.protocol, self.split
        if track == "multi_turn":
            made_of = self.settings.players.user, self.models, shop.benchmark, seed, texts
            user = make_user(*made_of, may_leak=protocol == "published")

        def begin(task: Task) -> Environment:
            # Leak-free, the agent knows what lies before the user's first task of the split. The recommender
            # is that of test tasks in either split.
            history = shop.benchmark.history(task, split, protocol)
            return Environment(shop, task, track, protocol, user, history=history)

        facts = {"data": shop.benchmark.content_hash, "shop": self.settings.shop.model_dump(), "seed": seed}
        facts |= {"track": track, "prompts": self.world.prompts.origin}
        facts |= {"protocol": protocol} if protocol == "published" else {}
        facts |= self.models.facts("user") | shop.facts(protocol)
        return replace(self, user=user, begin=begin, facts=facts, seed=seed)


def open_testbed(
    preset: str,
    track: Track,
    tasks: int | None,
    output_dir: str | Path,
    changes: Mapping[str, Any],
    split: Split = "test",
    protocol: Protocol = "leak_free",
) -> Testbed:
    """Load what agents are evaluated on; for arguments and errors see :func:`pwagents.evaluate`."""
    check_choice("track", track, Track)
    check_choice("protocol", protocol, Protocol)
    check_choice("split", split, Split)
    given = {"preset": preset, "stored_runs_only": False}
    given["output_dir"] = str(output_dir) or f"outputs/evaluate/{preset}"
    settings = load_settings("03_benchmark", {**changes, **given})
    try:
        settings.output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"output_dir: no folder can be made there ({error})") from None
    wanted = settings.play.method_tasks if tasks is None else tasks
    if not isinstance(wanted, int) or wanted < 0:
        raise SettingsError(f"tasks: found {tasks!r}; expected a number, 0 for all")
    if not settings.portable:
        portable.switch_off()
    engine.use(settings.engine)
    world = _open_world(settings, wanted, split, protocol)
    models = Models(settings.players, settings.output_dir / "runs" / "replies.sqlite")
    return Testbed(settings, track, world, models, None, None, {}, protocol, split).trial(0)


def _open_world(settings: BenchmarkNotebook, wanted: int, split: Split, protocol: Protocol) -> ShopWorld:
    """Make or load a world with its search and recommender; the latest synthetic one is kept in memory."""
    from pwagents.shop.sasrec import find_published  # imports torch

    data, shop_settings, seed = settings.data, settings.shop, settings.seed
    key = (data, shop_settings, seed, settings.play.official_repo, wanted, split, protocol)
    key += (portable.is_on(),)
    if key in _kept and _kept[key].folder.is_dir():
        return _kept[key]
    benchmark, _ = load_benchmark(data, seed, protocol)
    if protocol == "published" and data.source == "personalwab":
        # Nobody is given another recommender than the published one: none is really trained.
        if not find_published(data.folder):
            raise SettingsError(
                f"{data.data_dir}: found no pwab.pth with 1000_ids.json; `make data` brings them"
            )
        shop_settings = shop_settings.changed(rec_dates=1, recommender={"epochs": 1})
    folder, official_repo = settings.output_dir / "cache", settings.play.official_repo
    shop = Shop.open(benchmark, shop_settings, seed, folder, data, protocol)
    # Train tasks of users who have test tasks, too: a shop is that of a user's first test task.
    users = {task.user_id for task in benchmark.tasks["test"]}
    tasks = [task for task in benchmark.tasks[split] if task.user_id in users]
    tasks = sample_tasks(tasks, wanted, seed)
    # Published agents compare whole records, as long as MiniLM reads.
    prompts, cut = official_prompts(official_repo), Embedder(folder, shop_settings.max_tokens, batch_size=64)
    embedder = shop.embedder if prompts.texts else cut
    references = cache(partial(score_references, shop, tasks, seed))
    identify = cache(partial(FunctionClassifier, benchmark.tasks["train"]))
    world = ShopWorld(folder, shop, tasks, prompts, embedder, references, identify)
    if data.source == "synthetic":  # the files of other sources may change
        _kept.clear()
        _kept[key] = world
    return world
