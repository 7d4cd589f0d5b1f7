"""The trajectory viewer: readable, complete, and nothing it shows is taken for HTML."""

import pytest

from pwagents.evaluation.viewer import MAX_TEXT, show_episodes
from pwagents.schema import Action, Observation, Product, Review, Step, Task, Trajectory

EVIL = "<script>alert('x')</script>"
PRODUCTS = {
    "B1": Product(parent_asin="B1", title=f"Stool {EVIL}", category="Home"),
    "B2": Product(parent_asin="B2", title="Table {{ 7 * 7 }}", category="Home"),
}
IDS = {"task_id": "t", "user_id": "u", "type": "search", "target": "B1"}
TASK = Task(**IDS, timestamp=1, instruction=f"a stool {EVIL}", review=Review(rating=5))
STEPS = (
    Step(
        action=Action(problem="no JSON", problem_kind="malformed_json"),
        observation=Observation(text="Error"),
        error=f"no JSON {EVIL}",
        error_kind="malformed_json",
    ),
    Step(
        action=Action(name="respond", arguments={"content": EVIL}, thought=f"hm {EVIL}"),
        observation=Observation(text=f"Brown, please. {EVIL}"),
    ),
    Step(
        action=Action(name="search_product_by_query", arguments={"query": "stool"}),
        observation=Observation(text="list", products=("B2", "B1")),
    ),
    Step(action=Action(name="stop"), observation=Observation(text="x" * 5000)),
)
EPISODE = Trajectory(**IDS, steps=STEPS, end="stop")


def test_shows_the_whole_conversation():
    page = show_episodes(TASK, {"ReAct": EPISODE, "Other": EPISODE}, PRODUCTS, {"ReAct": "likes oak"}).data
    parts = ["ReAct", "likes oak", "(no call)", "respond", "Brown, please.", "search_product_by_query"]
    parts += ["0.90", "Table {{ 7 * 7 }}", "the target", "4 steps, 1 attempts", "search task of user u"]
    assert [part for part in parts if part not in page] == []
    assert page.count("the target") == page.count("search task of user u") == 2
    assert page.index("Table") < page.index("the target") and page.count("contextual profile") == 1
    assert "x" * (MAX_TEXT - 1) in page and "x" * MAX_TEXT not in page


@pytest.mark.parametrize(
    ("end", "words"), [("refused", "refused by its model"), ("error", "the agent's error")]
)
def test_it_says_why_an_episode_counts_0(end, words):
    episode = EPISODE.model_copy(update={"end": end, "message": f"too long {EVIL}"})
    page = show_episodes(TASK, {"ReAct": episode}, PRODUCTS).data.replace("&#39;", "'")
    assert f"{words} (too long &lt;script&gt;" in page


def test_nothing_it_shows_is_html():
    page = show_episodes(TASK, {EVIL: EPISODE}, PRODUCTS, {EVIL: EVIL}).data
    assert "<script" not in page and page.count("&lt;script&gt;") >= 7
