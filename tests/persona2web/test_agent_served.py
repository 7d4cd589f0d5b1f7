"""Any chat model can be the policy: a tiny model behind ``transformers serve``, from prompt to page."""

from pwagents.llm.openai_model import OpenAIModel
from pwagents.persona2web.agent import Brief, ChatWebAgent

from ..llm.serving import transformers_serve
from ..llm.tiny import save_telling_model
from .small_web import SmallWeb, recall

REPLY = ["Reason: onwards", "\nAction: click [1]", "\nAction: stop [done]"]


def test_a_reply_that_is_no_json_is_an_observation_and_one_with_actions_moves_the_page(tmp_path):
    folder, web = save_telling_model(tmp_path / "model", REPLY), SmallWeb()
    with transformers_serve(folder, tmp_path / "log") as url:
        policy = OpenAIModel(str(folder), url, attempts=1)
        agent = ChatWebAgent(policy, "indexed", "pre_execution", {"temperature": 0.0, "max_tokens": 8})
        played = agent(Brief("Book a flight in the seat I usually take", recall), web)
    before, step = played.steps
    assert "no JSON" in before.error and before.action == "".join(REPLY)
    assert (step.action, step.reason, step.error) == ("click [1]\nstop [done]", "onwards", "")
    assert web.page == "skylark" and played.answer == "done"
    assert all(each.usage.prompt_tokens > 100 for each in played.steps)
