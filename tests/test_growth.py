"""The growth benchmark: it measures what it says, on tiny sizes, and tells linear growth from worse."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig

STEPS = [
    "make the world",
    "read from files",
    "search index",
    "train the plain agent",
    "memory retrieval",
    "single-turn run",
]


@pytest.fixture
def benchmarks(project_root, monkeypatch):
    """Lets a test import the scripts of ``benchmarks/``."""
    monkeypatch.syspath_prepend(project_root / "benchmarks")


def test_every_step_is_measured(benchmarks, tmp_path, monkeypatch):
    import growth

    # It looks through all that these tests have imported, a second each time.
    monkeypatch.setattr(growth, "gc", SimpleNamespace(collect=lambda: None))
    rows = [row for part in (growth.make, growth.use) for row in growth.measure(part, tmp_path, 200, 10, 10)]
    assert [row["step"] for row in rows] == STEPS
    assert all(row["cpu_s"] > 0 and row["wall_s"] > 0 and row["mb"] >= 0 for row in rows)
    assert all(row["peak_mb"] >= row["mb"] for row in rows)
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 10


def made_up(power):
    """One step that costs size**power, as if measured, and one that always costs the same."""
    rows = []
    for n in (10, 100, 1000):
        rows.append({"n_products": n, "n_users": 7, "step": "grows", "cpu_s": n**power, "mb": 20.0 * n})
        rows.append({"n_products": n, "n_users": 7, "step": "stays", "cpu_s": 1.0, "mb": 0.0})
    return pd.DataFrame(rows).assign(wall_s=1.0, peak_mb=300.0)


def test_tables_and_figures_tell_linear_from_worse(benchmarks, tmp_path):
    import growth_report

    text = growth_report.save_growth(made_up(power=1.5), "products", tmp_path)
    assert "Growth with products, at 7 users: most time goes to grows (100%)" in text
    table = pd.read_csv(tmp_path / "tables" / "growth_products.csv", index_col="step")
    assert table["exponent of CPU s: 10 to 100"].round(3)[["grows", "stays"]].tolist() == [1.5, 0.0]
    assert table["exponent of MB: 100 to 1,000"].round(3)[["grows", "stays"]].tolist() == [1.0, 0.0]
    assert table["growth"][["grows", "stays"]].tolist() == ["FASTER THAN LINEAR", "linear or less"]
    assert (tmp_path / "figures" / "growth_products.png").stat().st_size > 10_000
    linear = growth_report.with_total(made_up(power=1.0))
    assert set(growth_report.growth_table(linear, "products")["growth", ""]) == {"linear or less"}


def test_raw_files_have_the_size_asked_for_and_fresh_users_in_every_copy(benchmarks, tmp_path):
    import raw_reviews

    n_reviews = raw_reviews.write_raw_files(tmp_path, 0.002, WorldConfig(n_users=10, n_products=100))
    assert (tmp_path / "reviews.jsonl").stat().st_size == pytest.approx(2e6, rel=0.1)
    loaded = load_amazon(tmp_path, n_users=100_000, min_behaviors=5)
    copies = {user[2:10] for user in loaded.behaviors}
    assert len(copies) > 3 and len(loaded.behaviors) == 10 * len(copies)
    assert sum(map(len, loaded.behaviors.values())) == pytest.approx(n_reviews, rel=0.01)


def test_raw_scans_as_a_table(benchmarks, tmp_path):
    import growth_report

    costs = {
        "cpu_s": [1.0, 10.0],
        "wall_s": [1.0, 9.0],
        "mb_per_s": [200.0, 222.0],
        "peak_mb": [500.0, 500.0],
    }
    scans = pd.DataFrame({"gb": [0.2, 2.0], "reviews": [10, 100]} | costs)
    text = growth_report.save_raw_scans(scans, tmp_path)
    assert "cpu_s 1.00, peak_mb 0.00" in text
    table = pd.read_csv(tmp_path / "tables" / "growth_raw_reviews.csv")
    assert np.allclose(table["peak MB"], 500)
