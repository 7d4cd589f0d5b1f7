"""A role-play to be killed."""

import os
import time

from pwagents.orion.role_play import play_roles

from .small_study import SEARCHES, small_study


def role_play(study, start, store, workers=2, n=14):
    """14 searches that succeeded, by the teacher."""
    return play_roles(
        study.benchmark,
        study.train_tasks,
        start,
        lambda number: study.teacher(number, 2),
        store,
        n=n,
        success=study.settings.success,
        params={},
        workers=workers,
    )


def play(folder, store, file_of_calls):
    """``file_of_calls`` gets a line an episode."""
    study = small_study(folder, study=SEARCHES)
    calls = os.open(file_of_calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(task):
        os.write(calls, f"{task.task_id}\n".encode())
        time.sleep(0.02)
        return study.start(task)

    role_play(study, start, store)
