"""An episode as a page: every text escaped, each web step with its picture."""

from PIL import Image

from pwagents.persona2web.show import episode_page, side_by_side
from pwagents.persona2web.world.types import Goal, MemoryStep, WebStep, WebTask, WebTrajectory

HOSTILE = "<script>ran()</script>"
TASK = WebTask(
    task_id="t",
    user_id="u",
    now=1,
    texts={0: "x", 1: "x", 2: HOSTILE},
    goal=Goal(domain="flights", host="a.test", operation="booking", stated={}, masked={}),
)
STEPS = (
    MemoryStep(query=HOSTILE, retrieved=("e1",), answer=HOSTILE),
    WebStep(observation="p", reason=HOSTILE, action="click [1]\nclick [2]"),
    WebStep(observation="p", action=f"stop [{HOSTILE}]", error=HOSTILE),
)
PLAYED = WebTrajectory(
    task_id="t", level=2, scheme="on_demand", architecture="indexed", steps=STEPS, answer=HOSTILE
)


def test_no_text_of_an_episode_becomes_markup():
    page = episode_page(TASK, PLAYED, None).html
    assert "<script" not in page and page.count("&lt;script") >= 6 and "<img" not in page
    assert "<script" not in side_by_side({HOSTILE: HOSTILE}).html


def test_a_step_shows_the_page_it_was_taken_on(tmp_path):
    for i, color in enumerate(("red", "green", "blue")):  # the first page, and one after each action
        Image.new("RGB", (1280, 900), color).save(tmp_path / f"{i:03d}.png")
    page = episode_page(TASK, PLAYED, tmp_path).html
    assert page.count("<img") == 2
    (tmp_path / "001.png").unlink()  # the page between two actions of one step is not shown
    assert episode_page(TASK, PLAYED, tmp_path).html == page


def test_long_texts_are_cut_and_say_so():
    assert "(4 more rows)" in side_by_side({"page": "\n".join("abcdefghij")}, rows=6).html
