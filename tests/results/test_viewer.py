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
    """Words of the history alone are bold; what came up, and the target among it, stands below."""
    profile = "Wants:\n- [stated] color: brown\n- [history] material: Oak"
    query = Action(name="search_product_by_query", arguments={"query": "brown Oak <b>stool</b>"})
    answers = ("Brown, please.", "1. B2 Table, wide ($5, 4 stars)\n2. B1 Stool <x> ($3, 4 stars)", "")
    seen = [Observation(text=text, products=("B2", "B1") if "B1" in text else ()) for text in answers]
    actions = (ACTIONS[1], query, ACTIONS[3])
    steps = [Step(action=a, observation=o, profile=profile) for a, o in zip(actions, seen, strict=True)]
    svg = draw_episode("a stool", EPISODE.model_copy(update={"steps": tuple(steps)}), "by PPO & co")
    shown = [" ".join("".join(text.itertext()).split()) for text in ElementTree.fromstring(svg)[2:]]
    assert shown == [
        "User a stool",
        "Agent asks Which?",
        "User answers Brown, please.",
        "Agent searches (bold: from the user's history) brown Oak <b>stool</b>",
        "Shop 1. Table, wide 2. Stool <x> \N{BLACK STAR} wanted",
        "by PPO & co",
    ]
    assert re.findall(r'bold">([^<]*)<', svg) == ["Oak", "\N{BLACK STAR}", "wanted"]


def test_a_picture_shows_two_questions_and_counts_the_rest():
    """Their answers and profiles count nevertheless: a word that one of them told is not from the history."""
    profile = "- [history] material: Oak\n- [history] color: brown"
    query = Action(name="search_product_by_query", arguments={"query": "brown Oak stool"})
    questions = [ACTIONS[1].model_copy(update={"arguments": {"content": f"Question {n}?"}}) for n in range(5)]
    answers = [*(f"Answer {n}." for n in range(4)), "Brown, please.", "1. B1 Stool ($3, 4 stars)"]
    seen = [Observation(text=text, products=("B1",) if "B1" in text else ()) for text in answers]
    profiles = ["", "", *[profile] * 4]
    parts = zip((*questions, query), seen, profiles, strict=True)
    steps = [Step(action=action, observation=answer, profile=known) for action, answer, known in parts]
    drawn = {}
    for n_hidden in (0, 1, 3):
        own = (*steps[: 2 + n_hidden], steps[-1])
        drawn[n_hidden] = draw_episode("a stool", EPISODE.model_copy(update={"steps": own}), "by PPO")
    assert [re.findall(r"Question \d", svg) for svg in drawn.values()] == [["Question 0", "Question 1"]] * 3
    assert [re.findall(r"and \d more questions?", svg) for svg in drawn.values()] == [
        [],
        ["and 1 more question"],
        ["and 3 more questions"],
    ]
    assert re.findall(r'bold">([^<]*)<', drawn[1])[:2] == ["brown", "Oak"]
    assert re.findall(r'bold">([^<]*)<', drawn[3])[:2] == ["Oak", "\N{BLACK STAR}"]
    heights = [float(ElementTree.fromstring(svg).get("height")) for svg in drawn.values()]
    assert heights[0] < heights[1] == heights[2]
