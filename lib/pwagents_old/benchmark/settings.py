"""Settings of the notebooks on the benchmark itself: data, profiles, baselines."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt, TypeAdapter

from pwagents.errors import DataError
from pwagents.schema import FUNCTION_OF, Task
from pwagents.settings import Group, NotebookSettings, Players, S, player
from pwagents_old.project import project_path


class ShowSettings(Group):
    """What is shown to be read."""

    example_user: NonNegativeInt = S(0, "The user to look at, by position among all users.")
    rows: PositiveInt = S(8, "Behaviours and instructions of that user, at most.")
    real_data: str = S(
        "",
        "Folder of raw Amazon reviews to compare the embedded world with, seen from the project's root; "
        "empty or not there: not compared.",
    )


class DataNotebook(NotebookSettings):
    """Notebooks 00 and 01."""

    show: ShowSettings


class ProfileSettings(Group):
    """How profiles are made, and which are shown."""

    alpha: NonNegativeInt = S(
        15, "No interest clusters for histories of at most so many behaviours (Orion, 5.1: 15)."
    )
    l_c: PositiveInt = S(6, "Behaviours that a micro-profile is made from, at most (Orion, 5.1: 6).")
    max_tokens: PositiveInt = S(
        256,
        "Texts of items and instructions are cut to this many tokens before they are embedded (MiniLM: 256).",
    )
    example_user: NonNegativeInt = S(
        0,
        "The user to look at, by position among those with a search task, the ones with three clusters "
        "first.",
    )
    published_profiles: str = S(
        "data/personalwab/PersonalWAB/envs/pwab/data/user_profiles.json",
        "PersonalWAB's file of profiles, seen from the project's root; shown where it is there.",
    )


class ProfilePlayers(Players):
    """Who makes, updates and judges profiles: "offline" is statistics and rules, without a language model."""

    profiler: Annotated[str, player("offline")] = S("offline", "Writes profiles (both papers: gpt-4o-mini).")
    updater: Annotated[str, player("offline")] = S(
        "offline", "Updates contextual profiles during a conversation."
    )
    writer: Annotated[str, player("offline")] = S("offline", "Writes instructions from profiles.")
    judge: Annotated[str, player("offline")] = S(
        "offline",
        "Judges whether profiles agree with behaviour (PersonalWAB: gpt-4o-mini); offline: MiniLM "
        "embeddings.",
    )


class ProfilesNotebook(NotebookSettings):
    """Notebook 02."""

    players: ProfilePlayers
    profiles: ProfileSettings


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
