"""A study of a small world."""

import pytest

from pwagents.data.synthetic import make_world
from pwagents.notebook import Run
from pwagents.settings import BenchmarkNotebook
from pwagents_old.benchmark.study import Study


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Of a study whose world is so small that all behaviours can be embedded."""
    data = {"source": "synthetic", "n_users": 20, "n_products": 400, "history": (10, 18)}
    return BenchmarkNotebook(
        preset="smoke",
        output_dir=tmp_path_factory.mktemp("study"),
        seed=0,
        data=data | {"interests": (2, 15), "drift": 0.5, "completeness": 0.2},
        shop={"max_tokens": 32, "rec_dates": 1, "recommender": {"epochs": 1}},
        players={},
        play={"max_tasks": 30, "method_tasks": 6},
    )


@pytest.fixture(scope="module")
def study_of():
    """``study_of(settings)``: a study of the world of some settings."""
    return lambda settings: Study(
        make_world(settings.data, settings.seed).benchmark,
        settings,
        Run("03", settings.output_dir, None),
    )


@pytest.fixture(scope="module")
def study(study_of, settings):
    return study_of(settings)
