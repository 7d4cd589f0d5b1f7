"""The trajectory viewer: readable and complete; that nothing it shows is HTML, a browser tells elsewhere."""

import re
from xml.etree import ElementTree

import pytest

from pwagents.results.viewer import MAX_TEXT, draw_episode, show_episodes
from pwagents.schema import Action, Observation, Product, Review, Step, Task, Trajectory

EVIL = "<script>alert('x')</script>"
TITLES = {"B1": "Stool", "B2": "Table {{ 7 * 7 }}"}
PRODUCTS = {asin: Product(parent_asin=asin, title=title, category="Home") for asin, title in TITLES.items()}
IDS = {"task_id": "t", "user_id": "u", "type": "search", "target": "B1"}
TASK = Task(**IDS, timestamp=1, instruction="a stool", review=Review(rating=5))
ACTIONS = (
    Action(problem="no JSON", problem_kind="malformed_json"),
    Action(name="respond", arguments={"content": "Which?"}, thought="hm"),
    Action(name="search_product_by_query", arguments={"query": "stool"}),
    Action(name="stop"),
)
SEEN = ({"text": "Error"}, {"text": "Brown, please."}, {"text": "list", "products": ("B2", "B1")})
STEPS = [
    Step(action=action, observation=Observation(**seen))
    for action, seen in zip(ACTIONS, (*SEEN, {"text": "x" * 5000}), strict=True)
]
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


def test_a_picture_tells_what_is_asked_searched_and_found():
    """Words of the history alone are bold, not those of an answer; questions beyond two are counted."""
    profile = "Wants:\n- [stated] color: brown\n- [history] material: Oak\n- [history] color: brown"
    query = Action(name="search_product_by_query", arguments={"query": "brown Oak <b>stool</b>"})
    found = Observation(text="1. B2 Table, wide ($5, 4 stars)\n2. B1 Stool <x> ($3)", products=("B2", "B1"))
    shown, heights, bold = {}, {}, {}
    for n, answers in {1: ["Any."], 2: ["Any.", "Any."], 3: ["Any.", "Any.", "Brown, please."]}.items():
        asked = [Action(name="respond", arguments={"content": f"Question {i}?"}) for i in range(n + 1)]
        seen = [Observation(text=text) for text in ["Any size.", *answers]]
        parts = [*zip(asked, seen, strict=True), (query, found), (ACTIONS[3], Observation(text=""))]
        steps = tuple(Step(action=act, observation=see, profile=profile) for act, see in parts)
        svg = draw_episode("a stool", EPISODE.model_copy(update={"steps": steps}), "by PPO & co")
        picture = ElementTree.fromstring(svg)
        shown[n] = [" ".join("".join(text.itertext()).split()) for text in picture[2:]]
        heights[n], bold[n] = float(picture.get("height")), re.findall(r'bold">([^<]*)<', svg)
    first = ["User a stool", "Agent asks Question 0?", "User answers Any size."]
    first += ["Agent asks Question 1?", "User answers Any."]
    last = ["Agent searches (bold: from the user's history) brown Oak <b>stool</b>"]
    last += ["Shop 1. Table, wide 2. Stool <x> \N{BLACK STAR} wanted", "by PPO & co"]
    assert shown[1] == [*first, *last] and shown[2] == [*first, "and 1 more question", *last]
    assert shown[3] == [*first, "and 2 more questions", *last] and heights[1] < heights[2] == heights[3]
    star = ["\N{BLACK STAR}", "wanted"]
    assert bold == {1: ["brown", "Oak", *star], 2: ["brown", "Oak", *star], 3: ["Oak", *star]}
