"""Small files of each source that has files: every field is sound, for tests to spoil."""

import gzip
import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from pwagents.schema import TASK_TYPES, UserProfile

from ..personalwab_files import write_records

SIZES = {"n_users": 2, "n_products": 200, "history": [5, 40], "interests": [2, 5]}
SIZES |= {"drift": 0.5, "completeness": 0.2}  # of DataSettings
FIRST = 1_600_000_000_000  # milliseconds
DAY = 86_400_000


def stool(i: int, **changes) -> dict:
    """A product as both sources have it."""
    product = {
        "main_category": "Home_and_Kitchen",
        "title": f"Sturdy Wooden Kitchen Stool Number{i}, Oak",
        "average_rating": 4.5,
        "rating_number": 10 + i,
        "features": ["Solid oak", "Four <b>legs</b>"],
        "description": ["A stool."],
        "price": "19.99",
        "store": "Stoolworks",
        "details": {"Color": "Brown", "Ranks": {"Stools": 3}},
        "parent_asin": f"B00000000{i:x}",
    }
    return product | changes


class SourceFiles:
    """Files of one source in ``folder``. ``with_...`` spoil, write them and return the folder."""

    folder: Path
    records: dict[str, Any]

    def put(self, path: str, value: Any) -> None:
        """Set the value at a path such as "reviews.6.rating"; ... takes it away."""
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        record = reduce(lambda found, key: found[key], parents, self.records)
        if value is ...:
            del record[last]
        else:
            record[last] = value

    def with_value(self, path: str, value: Any) -> Path:
        self.put(path, value)
        return self.write()

    def with_file(self, pattern: str, edit: Callable[[bytes], bytes] | None) -> Path:
        """Edit the bytes of the files of this name; None takes them away."""
        self.write()
        for path in list(self.folder.glob(pattern)) or [self.folder / pattern]:
            if edit is None:
                path.unlink()
            else:
                path.write_bytes(edit(path.read_bytes() if path.exists() else b""))
        return self.folder


class AmazonFiles(SourceFiles):
    """Two users with twelve behaviours each, and twelve products; ``write`` makes the files of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.metas = [self.meta(i) for i in range(12)]
        self.reviews = [self.review(user, i) for user in ("UANN", "UBOB") for i in range(12)]
        self.records = {"metas": self.metas, "reviews": self.reviews}

    @staticmethod
    def meta(i: int, **changes) -> dict:
        own = {"main_category": "Amazon Home", "features": ["Solid oak"], "images": []}
        return stool(i, **own, details=json.dumps(stool(i)["details"])) | changes

    @staticmethod
    def review(user: str, i: int, **changes) -> dict:
        text = f"It holds me well and came on day {i}, no wobble."
        review = {"user_id": user, "parent_asin": f"B00000000{i:x}", "timestamp": FIRST + i * DAY}
        return review | {"rating": 5.0, "title": "Fine", "text": text, "verified_purchase": True} | changes

    def with_line(self, file: str, line: bytes) -> Path:
        """Put in a line after the second one, with an empty line before it, which counts as a line."""
        {"reviews.jsonl.gz": self.reviews, "meta.jsonl.gz": self.metas}[file][2:2] = [b"", line]
        return self.write()

    def write(self, reviews: str = "reviews.jsonl.gz", meta: str = "meta.jsonl.gz") -> Path:
        """Write both files, gzipped where the name says so; a record may be an object or a line's bytes."""
        for name, records in ((reviews, self.records["reviews"]), (meta, self.records["metas"])):
            lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
            content = b"".join(line + b"\n" for line in lines)
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return self.folder


@pytest.fixture
def amazon_files(tmp_path) -> AmazonFiles:
    return AmazonFiles(tmp_path)


class PersonalWabFiles(SourceFiles):
    """Two users with six behaviours each, six products, and tasks for each user's last two behaviours."""

    def __init__(self, folder: Path):
        self.folder, users = folder, ("UANN", "UBOB")
        profile = dict.fromkeys(UserProfile.model_fields, "Low")
        profile = UserProfile(**profile | {"occupation": "Nurse", "tone_and_style": "Terse"})
        of_users = {user: {"user_profile": profile.model_dump(by_alias=True)} for user in users}
        self.records: dict[str, Any] = {
            "user_profile": of_users,
            "user_history": {user: [self.purchase(i) for i in range(6)] for user in users},
            "all_products": {f"B00000000{i}": stool(i) for i in range(6)},
            "instructions": {
                split: [self.task(user, i, kind) for user in users for kind in TASK_TYPES]
                for split, i in (("train", 4), ("test", 5))
            },
        }

    @staticmethod
    def purchase(i: int) -> dict:
        text = f"It holds me well.<br />It came on day {i}."
        review = {"rating": 5.0, "title": "Fine", "text": text, "timestamp": FIRST + i * DAY}
        return {"product_info": stool(i), "review": review, "split": "history"}

    def task(self, user: str, i: int, kind: str) -> dict:
        about = {"user_id": user, "type": kind, "timestamp": FIRST + i * DAY}
        return about | {"task": f"Please {kind} a stool for me.", "target": self.purchase(i)}

    def write(self, place: str = ".") -> Path:
        """Write all files; the folder that ``place`` starts from."""
        write_records(self.records, self.folder / place)
        return self.folder


@pytest.fixture
def personalwab_files(tmp_path) -> PersonalWabFiles:
    return PersonalWabFiles(tmp_path)
