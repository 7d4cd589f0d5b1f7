"""One episode as a page: screenshots, what the agent did and why, and a page's text in both forms."""

import io
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pwagents.persona2web.actions import Visit
from pwagents.persona2web.agent import Brief
from pwagents.persona2web.browser import ChromiumDriver, find_chromium
from pwagents.persona2web.driver import Driver
from pwagents.persona2web.episode import run_episode
from pwagents.persona2web.html_driver import HtmlDriver
from pwagents.persona2web.memory import recall_of
from pwagents.persona2web.observe import observe
from pwagents.persona2web.runs import Condition
from pwagents.persona2web.serve import serving
from pwagents.persona2web.sites import LocalWeb
from pwagents.persona2web.study import OFFLINE, Study
from pwagents.persona2web.types import AskStep, MemoryStep, WebTask, WebTrajectory
from pwagents.results.tables import Html

_SHOT = 520  # pixels that a screenshot is wide in the notebook
_BOX = (
    "background:#f6f8fa;color:#1f2328;border:1px solid #d0d7de;border-radius:6px;padding:6px 8px;"
    "white-space:pre-wrap;overflow-wrap:anywhere"
)


def recorded(study: Study, task: WebTask, folder: Path) -> tuple[WebTrajectory, Path | None]:
    """The offline agent's episode of a task at level 2 in Chromium, with screenshots and trace in ``folder``.

    Returns:
        The episode, and the folder; None for it where no Chromium is found, and none was used.
    """
    world, condition = study.world, Condition("indexed", "on_demand")
    recall = recall_of(world.histories[task.user_id], "implicit", condition.retrieval, study.embedder)
    brief, agent = Brief(task.texts[2], recall), study.agent(OFFLINE, condition, world)(task)

    def play(driver: Driver) -> WebTrajectory:
        return run_episode(task, 2, agent, brief, world.web, driver, "indexed", "on_demand")

    if find_chromium() is None:
        return play(HtmlDriver(world.web)), None
    with serving(world.web) as port, ChromiumDriver(port, record=folder) as driver:
        return play(driver), folder / "000"  # the first visit's


def both_observations(
    web: LocalWeb, driver: Driver, task: WebTask, steps: Sequence, until: int
) -> dict[str, str]:
    """A page of an episode in both forms: that before the web step number ``until``, reached again."""
    session = web.begin(task.now)
    try:
        driver.begin(session)
        visit = Visit(driver, "indexed")
        for step in [step for step in steps if step.kind == "web"][:until]:
            for action in step.action.splitlines():
                visit.act(action)
        return {form: observe(driver.page, form) for form in ("indexed", "occam")}
    finally:
        web.end(session)


def side_by_side(texts: dict[str, str], rows: int = 26) -> Html:
    """Texts beside each other, the first rows of each."""
    cells = []
    for name, text in texts.items():
        lines = text.splitlines()
        more = f"\n({len(lines) - rows} more rows)" if len(lines) > rows else ""
        cells.append(
            f'<div style="flex:1 1 24em;min-width:0"><b>{escape(name)}</b> ({len(lines)} rows)'
            f'<pre style="{_BOX};font-size:11px">{escape(chr(10).join(lines[:rows]) + more)}</pre></div>'
        )
    return Html(f'<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(cells)}</div>')


def episode_page(task: WebTask, trajectory: WebTrajectory, pictures: Path | None) -> Html:
    """An episode step by step, each web step with the screenshot of the page it was taken on.

    Args:
        pictures: the folder of :class:`pwagents.persona2web.browser.ChromiumDriver`; None: no screenshots.
    """
    parts, picture = [f"<p><b>Task</b> {escape(task.texts[trajectory.level])}</p>"], 0
    for number, step in enumerate(trajectory.steps, 1):
        image = ""
        if isinstance(step, MemoryStep):
            found = f"{len(step.retrieved)} records found" if step.retrieved else "nothing found"
            said = f"looks into the history: {step.query}\n{found}. {step.answer}"
        elif isinstance(step, AskStep):
            said = f"asks the user: {step.question}\n{step.answer}"
        else:
            actions = step.action.splitlines()
            said = f"{step.reason}\n{step.action}" + (f"\nfailed: {step.error}" if step.error else "")
            image = _picture(pictures / f"{picture:03d}.png", number) if pictures else ""
            picture += sum(not action.startswith("stop") for action in actions)
        box = f'<div style="{_BOX}"><b>{number}</b> {escape(said)}</div>'
        parts.append(f'<div style="flex:1 1 20em;max-width:{_SHOT}px">{box}{image}</div>')
    answer = f"<p><b>Answer</b> {escape(trajectory.answer or 'none')}</p>"
    return Html(
        f'{parts[0]}<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(parts[1:])}</div>{answer}'
    )


def _picture(path: Path, number: int) -> str:
    """A screenshot, made small."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").resize((_SHOT, round(image.height * _SHOT / image.width)))
    small = small.crop((0, 0, _SHOT, min(small.height, 2 * _SHOT)))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    data = b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="The page at step {number}" style="max-width:100%">'
