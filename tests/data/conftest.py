"""Small raw Amazon files: users and products whose every field is sound, for tests to spoil."""

import gzip
import json
from pathlib import Path

import pytest

FIRST = 1_600_000_000_000  # milliseconds
DAY = 86_400_000


class AmazonFiles:
    """Two users with twelve behaviours each, and twelve products; ``write`` makes the files of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.metas = [self.meta(i) for i in range(12)]
        self.reviews = [self.review(user, i) for user in ("UANN", "UBOB") for i in range(12)]

    @staticmethod
    def meta(i: int, **changes) -> dict:
        meta = {
            "main_category": "Amazon Home",
            "title": f"Sturdy Wooden Kitchen Stool Number{i}, Oak",
            "average_rating": 4.5,
            "rating_number": 10 + i,
            "features": ["Solid oak", "Four legs"],
            "description": ["A stool."],
            "price": "19.99",
            "store": "Stoolworks",
            "details": '{"Color": "Brown", "Ranks": {"Stools": 3}}',
            "parent_asin": f"B00000000{i:x}",
            "images": [],
        }
        return meta | changes

    @staticmethod
    def review(user: str, i: int, **changes) -> dict:
        review = {
            "rating": 5.0,
            "title": "Fine",
            "text": f"It holds me well and came on day {i}, no wobble.",
            "user_id": user,
            "parent_asin": f"B00000000{i:x}",
            "timestamp": FIRST + i * DAY,
            "verified_purchase": True,
        }
        return review | changes

    def change(self, table: str, i: int, changes: dict) -> None:
        """Change fields of one record of "reviews" or "metas"; ... takes a field away."""
        records = getattr(self, table)
        records[i] = {key: value for key, value in (records[i] | changes).items() if value is not ...}

    def change_reviews(self, positions, **changes) -> None:
        """Change the reviews at these positions of both users' histories of twelve."""
        for review in self.reviews:
            if (review["timestamp"] - FIRST) // DAY in positions:
                review.update(changes)

    def write(self, reviews: str = "reviews.jsonl.gz", meta: str = "meta.jsonl.gz") -> Path:
        """Write both files, gzipped where the name says so; a record may be an object or a line's bytes."""
        for name, records in ((reviews, self.reviews), (meta, self.metas)):
            lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
            content = b"".join(line + b"\n" for line in lines)
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return self.folder


@pytest.fixture
def amazon_files(tmp_path) -> AmazonFiles:
    return AmazonFiles(tmp_path)
