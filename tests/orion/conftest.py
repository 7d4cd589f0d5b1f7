"""What all tests of Orion share: a model that has no idea, and tasks to train on."""

import pytest

from pwagents.schema import TASK_TYPES

from .small_study import save_tiny_model


@pytest.fixture(scope="session")
def tiny(study):
    return save_tiny_model(study.output_dir / "tiny")


@pytest.fixture(scope="session")
def train_tasks(study):
    """Those to train on, by type."""
    return {kind: [task for task in study.train_tasks if task.type == kind] for kind in TASK_TYPES}
