"""Logs of trainings: read together, judged, drawn."""

import pandas as pd

from pwagents.lm.log import not_falling, plot_losses, read_losses


def log(name, *losses):
    return pd.DataFrame({"training": name, "step": range(1, len(losses) + 1), "loss": losses})


def test_logs_are_read_under_their_names_and_a_folder_without_one_is_passed_over(tmp_path):
    for name in ("a", "b", "untrained"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        log(name, 2.0, 1.0).drop(columns="training").to_csv(tmp_path / name / "log.csv", index=False)
    losses = read_losses({name: tmp_path / name for name in ("b", "untrained", "a")})
    assert losses["training"].tolist() == ["b", "b", "a", "a"] and losses["loss"].tolist() == [2, 1, 2, 1]


def test_a_loss_that_does_not_fall_is_named_and_one_row_tells_nothing():
    nan = float("nan")
    logs = [log("falls", 3, 4, 1), log("rises", 1, 2), log("broken", 2, nan), log("short", 1.0)]
    assert not_falling(pd.concat(logs)) == ["rises", "broken"]


def test_each_training_has_a_line():
    (ax,) = plot_losses(pd.concat([log("SFT, 100", 3, 1), log("SFT, 200", 3, 2)])).axes
    assert [line.get_label() for line in ax.get_lines()] == ["SFT, 100", "SFT, 200"]
    assert ax.get_ylim()[0] == 0
