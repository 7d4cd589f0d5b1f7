"""Any chat model can be the policy: tiny models behind ``transformers serve``, from prompt to page."""

from pwagents.llm.openai_model import OpenAIModel
from pwagents.persona2web.agent import Brief, ChatWebAgent, most_steps

from ..llm.serving import transformers_serve
from ..llm.tiny import save_random_model, save_telling_model
from .small_web import SmallWeb, recall

SAMPLING = {"temperature": 0.0, "max_tokens": 12}


def play(folder, url, scheme):
    web = SmallWeb()
    agent = ChatWebAgent(OpenAIModel(str(folder), url, attempts=1), "occam", scheme, SAMPLING)
    return agent(Brief("Book a flight in the seat I usually take", recall), web), web


def test_a_model_that_knows_the_form_walks_until_its_steps_are_used_up(tmp_path):
    folder = save_telling_model(tmp_path / "telling", ["Reason: onwards", "\nAction: click ", "[1]"])
    with transformers_serve(folder, tmp_path / "log") as url:
        played, web = play(folder, url, "none")
    first, *rest = played.steps
    assert (first.action, first.reason, first.error) == ("click [1]", "onwards", "")
    assert web.page == "skylark" and len(played.steps) == most_steps("occam", "none")
    assert all(step.error for step in rest)  # that page has no such element
    assert all(step.usage.prompt_tokens > 100 for step in played.steps)


def test_what_a_random_model_writes_becomes_observations(tmp_path):
    folder = save_random_model(tmp_path / "random")
    with transformers_serve(folder, tmp_path / "log") as url:
        played = {scheme: play(folder, url, scheme)[0] for scheme in ("on_demand", "pre_execution")}
    for scheme, each in played.items():
        steps = [step for step in each.steps if step.kind == "web"]
        assert len(steps) == most_steps("occam", scheme)
        assert all(step.error for step in steps)
