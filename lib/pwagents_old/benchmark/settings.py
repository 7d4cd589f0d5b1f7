"""Settings of the notebooks on the benchmark itself: data, profiles, baselines."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt, TypeAdapter

from pwagents.errors import DataError
from pwagents.schema import FUNCTION_OF, Protocol, Task
from pwagents_old.llm.settings import Players, player
from pwagents_old.notebook.settings import NotebookSettings
from pwagents_old.project import project_path
from pwagents_old.settings import settings
from pwagents_old.web.official_prompts import check_clone
from pwagents_old.web.settings import ShopSettings


@settings
class ShowSettings:
    """What is shown to be read."""

    example_user: NonNegativeInt = 0
    """The user to look at, by position among all users."""
    rows: PositiveInt = 8
    """Behaviours and instructions of that user, at most."""
    real_data: str = ""
    """Folder of raw Amazon reviews to compare the embedded world with, seen from the project's root; empty or
    not there: not compared."""


@settings
class DataNotebook(NotebookSettings):
    """Notebooks 00 and 01."""

    show: ShowSettings
    """What is shown to be read."""


@settings
class ProfileSettings:
    """How profiles are made, and which are shown."""

    alpha: NonNegativeInt = 15
    """No interest clusters for histories of at most so many behaviours (Orion, 5.1: 15)."""
    l_c: PositiveInt = 6
    """Behaviours that a micro-profile is made from, at most (Orion, 5.1: 6)."""
    max_tokens: PositiveInt = 256
    """Texts of items and instructions are cut to this many tokens before they are embedded (MiniLM: 256)."""
    example_user: NonNegativeInt = 0
    """The user to look at, by position among those with a search task, the ones with three clusters first."""
    published_profiles: str = "data/personalwab/PersonalWAB/envs/pwab/data/user_profiles.json"
    """PersonalWAB's file of profiles, seen from the project's root; shown where it is there."""


@settings
class ProfilePlayers(Players):
    """Who makes, updates and judges profiles: "offline" is statistics and rules, without a language model."""

    profiler: Annotated[str, player("offline")] = "offline"
    """Writes profiles (both papers: gpt-4o-mini)."""
    updater: Annotated[str, player("offline")] = "offline"
    """Updates contextual profiles during a conversation."""
    writer: Annotated[str, player("offline")] = "offline"
    """Writes instructions from profiles."""
    judge: Annotated[str, player("offline")] = "offline"
    """Judges whether profiles agree with behaviour (PersonalWAB: gpt-4o-mini); offline: MiniLM embeddings."""


@settings
class ProfilesNotebook(NotebookSettings):
    """Notebook 02."""

    players: ProfilePlayers
    """Who plays which role."""
    profiles: ProfileSettings
    """How profiles are made, and which are shown."""


@settings
class MethodPlayers(Players):
    """Who plays the agent, and who answers it."""

    policy: Annotated[str, player("offline")] = "offline"
    """The model of all prompting methods (papers: gpt-4o, gpt-4o-mini); offline: rules in its place."""
    more_policies: tuple[Annotated[str, player()], ...] = ()
    """Further models that play all of the same, in rows of their own."""
    user: Annotated[str, player("none", "rules")] = "rules"
    """Who answers in the multi-turn track (papers: gpt-4o-mini); rules: a simulated user without a model."""


@settings
class MethodSettings:
    """Which tasks are played, and how."""

    memory_length: PositiveInt = 50
    """Behaviours that the plain agent's memory recalls (PersonalWAB, single-turn: 50)."""
    max_tasks: NonNegativeInt = 0
    """Test tasks, drawn at random; 0 takes all."""
    method_tasks: NonNegativeInt = 600
    """Tasks that the prompting methods play, drawn at random from these; 0 takes all."""
    noise_seeds: PositiveInt = 3
    """Seeds under which one and the same method is played, to see how far its results differ."""
    worlds: tuple[NonNegativeInt, ...] = ()
    """Seeds of embedded worlds in which the plain agent plays, and where nothing is bought twice; none: only
    in the world at hand."""
    protocols: Annotated[tuple[Protocol, ...], Field(min_length=1)] = ("leak_free",)
    """Of the prompting methods, rows in this order: what an agent, its shop and its user may know."""
    published_items: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (0,)
    """Under the published protocol, items that a memory recalls at most, in rows of their own. 0: the
    paper's (50 single-turn, 20 multi-turn, RecMind 400); 10: as the code runs, which drops the option."""
    official_repo: Annotated[str, AfterValidator(check_clone)] = ""
    """A clone of HongruCai/PersonalWAB, to use its prompts, seen from the project's root; empty: our own."""
    functions_file: str = ""
    """JSON: instruction -> function, the answers of PUMA's fine-tuned model, seen from the project's root.
    The row PUMA (gpt-4o) is made from them, and left out where they are not there."""


@settings
class BenchmarkNotebook(NotebookSettings):
    """Notebook 03."""

    shop: ShopSettings
    """What an agent finds in the shop."""
    players: MethodPlayers
    """Who plays the agent, and who answers it."""
    play: MethodSettings
    """Which tasks are played, and how."""


def read_functions(file: str, tasks: Sequence[Task]) -> dict[str, str]:
    """Read which function PUMA's fine-tuned model named for an instruction; nothing where there is no file.

    Args:
        file: JSON: instruction -> function (empty where the model named none), or a list of them.
        tasks: those whose instructions must be in it.

    Raises:
        DataError: the file is no such object, or lacks an instruction.
    """
    path = project_path(file)
    if not file or not path.exists():
        return {}
    # Of a list, which published scripts write, the first counts.
    first = BeforeValidator(lambda named: named[0] if isinstance(named, list) and named else named)
    function = Annotated[Literal["", *FUNCTION_OF.values()], first]
    try:
        functions = TypeAdapter(dict[str, function]).validate_json(path.read_bytes())
    except ValueError as error:
        expected = "one JSON object: instruction -> the name of a function"
        raise DataError(path, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    for task in tasks:
        is_playable = task.type != "review" or task.review.text
        if is_playable and task.instruction not in functions:
            wrong, expected = "no function for its instruction", "one for every test task"
            raise DataError(path, f"task {task.task_id}", "instruction", wrong, expected)
    return functions
