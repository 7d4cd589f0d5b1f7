"""A study small enough for tests, with all types of tasks, interests, and a model that has no idea."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from base_model.dialogues import dialogue_tokenizer
from base_model.small import make_small_model
from pwagents.orion.agent import RULES
from pwagents.orion.study import Study, make_study
from pwagents.profiles.contextual import Context, ContextualProfile, ProfileLine
from pwagents.schema import FUNCTION_OF, Action, Observation, Step, Task, Trajectory
from pwagents.settings import OrionSettings, plain
from pwagents.shop.environment import Agent, BeliefState
from pwagents.store import Episode

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))
GROUPS = CIRCUMSTANCES["study"]
SEARCHES = {"task_types": ("search",), "alpha": 10**6}  # nothing embedded, no recommender
TINY = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ARGUMENTS = {"search": "query", "recommend": "product_sequence", "review": "review", "ask": "content"}


def cases(name: str) -> pytest.MarkDecorator:
    """A table of ``circumstances.yaml``: the test is run with each row as its ``case``."""
    return pytest.mark.parametrize("case", CIRCUMSTANCES[name].values(), ids=CIRCUMSTANCES[name])


def small_settings(folder: Path, seed: int = 0, stored_runs_only: bool = False, **groups) -> OrionSettings:
    """14 users held out, 16 to train on; ``groups`` hold what is different."""
    changed = {name: group | groups.get(name, {}) for name, group in GROUPS.items()}
    changed |= {"preset": "small", "output_dir": folder, "seed": seed, "stored_runs_only": stored_runs_only}
    return OrionSettings(**changed)


def small_study(folder: Path, **changes) -> Study:
    """The study of :func:`small_settings`."""
    return make_study(small_settings(folder, **changes))


def elsewhere(study: Study, folder: Path, **changes) -> Study:
    """The same study with its results in another folder; ``changes`` are of its settings."""
    moved = copy(study)
    moved.output_dir, moved.settings = folder, study.settings.changed(**changes)
    return moved


def save_tiny_model(folder: Path, seed: int = 1) -> Path:
    """A random model of the small tokenizer; it has no idea."""
    tokenizer = dialogue_tokenizer(RULES)
    make_small_model(tokenizer, seed, TINY).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def play(study: Study, agent: Agent, task: Task) -> tuple[list[BeliefState], Trajectory]:
    """An episode: the belief states before its steps and at its end, and what was done."""
    episode = study.start(task)
    states = [episode.state]
    while episode.end is None:
        episode.step(agent(episode.state))
        states.append(episode.state)
    return states, episode.trajectory


def profile_of(*lines: Sequence) -> ContextualProfile:
    """Of (text, whether it is positive, provenance)."""
    return ContextualProfile(lines=tuple(ProfileLine.of(*line) for line in lines))


def state_of(instruction: str, *lines: Sequence, purchases=(), **fields) -> BeliefState:
    """A belief state whose episode began with a profile of these lines."""
    profile = profile_of(*lines)
    known = {"product": None, "history": (), "session": (), "context": Context(profile, purchases)} | fields
    return BeliefState("U0001", instruction, f"User U0001: {instruction}", profile=profile, **known)


def record(task: Task, steps: Sequence[Step], method: str = "m", outcome: str = "scored") -> Episode:
    """The stored episode of a task in which these steps were made."""
    given = {"task_id": task.task_id, "user_id": task.user_id, "type": task.type}
    trajectory = Trajectory(**given, target=task.target, steps=tuple(steps)) if outcome == "scored" else None
    told = {"key": task.task_id, "method": method, "model": "none", "params": {}, "seconds": 0.0}
    return Episode(**given, **told, outcome=outcome, trajectory=trajectory)


def notebook(kind: type[OrionSettings], settings: OrionSettings, **changed) -> OrionSettings:
    """The settings of a notebook that has more of them; a mapping changes some of its group."""
    groups = plain(settings) | {"rl": {"max_steps": 1} | ({} if "rl" in changed else {"methods": ["GRPO"]})}
    for name, value in changed.items():
        groups[name] = groups[name] | value if isinstance(value, dict) else value
    return kind(**groups)


def call(name: str, said: Any = None) -> Action:
    """A call of a function by its short name: with a text or ids, or with all arguments by their names."""
    arguments = {} if said is None else said if isinstance(said, dict) else {ARGUMENTS[name]: said}
    return Action(name=(FUNCTION_OF | {"ask": "respond"}).get(name, name), arguments=arguments)


def step(action: Action, text: str = "", products=(), **fields) -> Step:
    return Step(action=action, observation=Observation(text=text, products=products), **fields)
