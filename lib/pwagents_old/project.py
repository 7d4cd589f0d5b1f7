"""Which code the rooms of this package run, for the keys of stored results."""

from pathlib import Path

from pwagents.code import LOADED, hash_files, hash_of, require_loaded

# Rooms whose modules have other names in the new package. Of each other room, its namesake there counts, too.
_MOVED = {
    "web": ("shop", "llm/prompts", "profiles/contextual"),
    "web/sasrec": ("shop/sasrec",),
    "agents": ("agents", "llm/prompts"),
    "agents/replies": ("agents/replies", "llm/fence", "llm/parts"),
}
_SHOWS = ("views.py", "figures.py", "paper_rows.py", "costs.py", "episode_page.py")  # what only shows results


def code_hash(*rooms: str) -> str:
    """Return SHA-256 (16 hex digits) over code and data of folders and modules of the library, as loaded.

    It is part of the key of a stored run. Comments, docstrings, layout, and modules that only show results do
    not count. Rooms are folders ("web"), which no list of modules forgets, or modules ("data/instructions").

    Raises:
        KeyError: there is no such folder or module.
        StaleCodeError: a file of them was edited after it had been loaded.
    """
    hashes = hash_files(files_of_rooms(*rooms))
    require_loaded(hashes)
    return hash_of(hashes)


def files_of_rooms(*rooms: str) -> list[str]:
    """Return the names of the files that decide what the rooms do, in both packages."""
    files = set()
    for room in rooms:
        there = _files_at(f"pwagents_old/{room}")
        moved = [_files_at(f"pwagents/{name}") for name in _MOVED.get(room, (room,))]
        if not (there or any(moved)) or (room in _MOVED and not all(moved)):
            raise KeyError(f"no room {room!r} in the library")
        files.update(there, *moved)
    return sorted(files)


def _files_at(place: str) -> list[str]:
    found = [name for name in LOADED if name.startswith((f"{place}/", f"{place}."))]
    return [name for name in found if Path(name).name not in _SHOWS]
