"""Tables of notebook 09 from a few episodes made by hand."""

import pandas as pd
import pytest

from pwagents.check import check_tables
from pwagents.persona2web import show
from pwagents.persona2web.experiment import CHANCE, OFFLINE, ORACLE
from pwagents.persona2web.judge.scores import SCORES
from pwagents.results.papers import load_targets
from pwagents.results.tables import save_table

RIGHT = dict.fromkeys(SCORES, 1.0) | {"reached": 1.0}
LOST = dict.fromkeys(SCORES, 0.0) | {"reached": 0.0}


def episode(method, scheme="on_demand", level=2, user=0, memory="implicit", **scores):
    return {
        "method": method, "model": "none", "scheme": scheme, "level": level, "memory": memory,
        "architecture": "indexed", "task_id": f"t{user}", "user_id": f"u{user}", "retriever": "minilm",
        "sample": 0, "fault": 0.0, "asked": False, **RIGHT, **scores,
    }  # fmt: skip


@pytest.fixture
def level_2():
    """Two users: guesses and no history fail, on demand one of two succeeds, the oracle both."""
    rows = []
    for user in (0, 1):
        rows += [
            episode(CHANCE, "none", user=user, **LOST),
            episode(OFFLINE, "none", user=user, **LOST),
            episode(OFFLINE, user=user, memory="recency", **LOST),
            episode(OFFLINE, user=user, **(RIGHT if user else LOST)),
            episode(OFFLINE, "pre_execution", user=user, memory="recency", **LOST),
            episode(OFFLINE, "pre_execution", user=user),
            episode(ORACLE, user=user),
        ]
    return pd.DataFrame(rows)


def test_the_main_table_has_a_row_each_and_intervals_within_0_and_1(level_2):
    means, cells = show.main_table(level_2)
    assert means.loc[("indexed DOM", OFFLINE, "on-demand"), ("task", "SR")] == 0.5
    assert means.loc[("indexed DOM", ORACLE, "not used"), ("task", "SR")] == 1
    assert cells.loc[("indexed DOM", OFFLINE, "on-demand"), ("task", "SR")] == "0.500 ±0.500"
    assert len(means) == 7 and not means.index.duplicated().any()


def test_scores_that_a_level_does_not_have_are_left_out(level_2):
    named = level_2.assign(level=0, website_retrieval=float("nan"), preference_retrieval=float("nan"))
    means, _ = show.scores_table(show.told(named), ["agent", "access"])
    assert ("website", "found") not in means and ("website", "used") in means


def test_an_episode_is_lost_where_it_first_fails():
    cases = {
        "not found": {"website_retrieval": 0.5, "success": 0.0},
        "found, not used": {"preference_utilization": 0.5, "success": 0.0},
        "used, not carried out": {"intent": 0.0, "success": 0.0},
        "success": {},
    }
    frame = pd.DataFrame([episode(OFFLINE, user=i, **scores) for i, scores in enumerate(cases.values())])
    lost = show.funnel(frame).set_index("lost")["share"]
    assert lost.to_dict() == dict.fromkeys(cases, 0.25)


def test_nothing_to_be_found_counts_as_found():
    frame = pd.DataFrame([episode(OFFLINE, level=0, website_retrieval=None, preference_retrieval=None)])
    assert show.funnel(frame).set_index("lost")["share"]["success"] == 1


def test_deviations_are_over_runs_and_faults_stand_apart():
    rows = [episode(OFFLINE, user=u, sample=s, success=float(s == 0)) for u in (0, 1) for s in (0, 1)]
    rows.append(episode(OFFLINE, user=2, sample=0, success=0.0, fault=1.0))
    rows.append(episode(OFFLINE, user=2, sample=1, success=0.0, fault=1.0))
    (row,) = show.deviations(pd.DataFrame(rows)).to_dict("records")
    assert row["", "runs"] == 2 and row["", "episodes with a fault"] == pytest.approx(1 / 3)
    assert row["SR", "mean"] == pytest.approx(1 / 3)
    assert row["SR", "deviation"] == pytest.approx(2**0.5 / 3)
    assert row["SR of episodes", "with one"] == 0 and row["SR of episodes", "without a fault"] == 0.5


def test_drift_is_paired_by_task(level_2):
    later = level_2.assign(success=0.0)
    table = show.drift_table(level_2, later).set_index(["agent", "access"])
    assert table.loc[(ORACLE, "not used"), "difference"] == -1
    assert table.loc[(OFFLINE, "on-demand"), "difference"] == -0.5


def test_expected_orders_are_told_as_they_are_found(level_2):
    explicit = level_2[level_2["memory"] == "recency"].assign(memory="explicit", asked=False, **RIGHT)
    levels = pd.concat([level_2, *(level_2.assign(level=n, **RIGHT) for n in (0, 1))])
    found = show.orders(levels, explicit).set_index("expected")["found"]
    assert found["SR, oracle above on-demand"] == "yes" and found["SR, oracle above pre-execution"] == "NO"
    assert found["SR, on-demand, above the latest records"] == "yes"
    assert found["SR, pre-execution, profile above history"] == "NO"  # both are 1
    assert found["SR, level 0, above level 1"] == "NO" and found["SR, level 1, above level 2"] == "yes"


def test_the_papers_rows_and_ours_are_rows_of_their_own(level_2):
    printed = set(load_targets()["row"])
    tables = [
        show.main_with_paper(pd.concat([level_2, level_2.assign(architecture="occam")])),
        show.levels_with_paper(level_2),
        show.profile_with_paper(level_2, level_2.iloc[:0]),
    ]
    for table in tables:
        ours = table["source"] == "here"
        assert 0 < ours.sum() < len(table)
        assert not set(table.loc[ours, "row"]) & printed and set(table.loc[~ours, "row"]) <= printed
        assert table.loc[ours, ["backbone", "data", "n", "grader"]].notna().all(axis=None)
    main = tables[0].set_index("row")
    assert main.loc["offline agent (on-demand), indexed DOM", "SE of SR"] == pytest.approx(0.5 / 2**0.5)
    assert main.loc[main["source"] != "here", "SE of SR"].isna().all()  # the paper prints none


def test_the_papers_rows_stand_as_printed(level_2, tmp_path):
    """As `make check` compares them."""
    table = show.main_with_paper(pd.concat([level_2, level_2.assign(architecture="occam")]))
    save_table(table, "09_with_paper", title="x", output_dir=tmp_path)
    cells = check_tables(tmp_path, tmp_path)
    assert len(cells) > 20 and {cell.verdict for cell in cells} == {"OK"}


def test_a_language_models_rows_name_it(level_2):
    frame = pd.concat([level_2, level_2[level_2["method"] == OFFLINE].assign(method="gpt", model="gpt")])
    table = show.main_with_paper(pd.concat([frame, frame.assign(architecture="occam")]))
    ours = table[table["source"] == "here"]
    assert set(ours.loc[ours["row"].str.startswith("gpt"), "backbone"]) == {"gpt"}
