"""The judge that is a language model with a rubric, as the paper's is; rubric and wording are ours."""

from collections.abc import Sequence

from pydantic import create_model

from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import read_reply
from pwagents.persona2web.judge import Score, Scores, View
from pwagents.persona2web.transcript import Transcript, tell

RUBRIC = """\
You judge how a web agent carried out a task for one person. The task leaves something out that the person's
browsing history shows: {to_find}. You know what would have been right; the agent did not. You are shown
{shown}.

Give each score as 0, 0.5 or 1:
{criteria}
Judge what was done, not how well it was told. Reply with one JSON object of these scores, such as
{example}, and nothing else."""

SHOWN: dict[View, str] = {
    "reasoning_aware": "what it asked the history and the user, what it was told, its reasons, its actions "
    "and where it ended",
    "action_wise": "its actions alone, and those of a valid route; a right action is one of the route's",
    "outcome": "the last page that it saw and its answer",
}
RETRIEVAL = {
    "website_retrieval": "1 where three or more records found show the right website; 0.5 for one or two",
    "preference_retrieval": "1 where for every preference three or more records found show it (all of them, "
    "where fewer exist); 0.5 where some were found",
}
USE = {
    "website_utilization": "1 where it began and ended its work on the right website; 0.5 where it was there",
    "preference_utilization": "1 where it applied every preference, as a filter or in a search; 0.5 for "
    "some. An item that merely happens to fit counts nothing",
    "intent": "1 where it did the right operation and met all stated constraints, whatever the preferences; "
    "0.5 where a fault of the site stopped a right plan",
}


class LlmJudge:
    """Scores transcripts with a language model.

    Args:
        model: the judge; its replies are asked at temperature 0.
    """

    def __init__(self, model: ChatModel):
        self.model = model

    def __call__(self, transcripts: Sequence[Transcript]) -> list[Scores | None]:
        """Scores of each; None where the model refuses or its reply cannot be read.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        replies = ask_all(self.model, [request_for(each) for each in transcripts], "judge")
        return [
            read_scores(reply, transcript) if reply else None
            for reply, transcript in zip(replies, transcripts, strict=True)
        ]


def request_for(transcript: Transcript) -> Request:
    """The question that the judge is asked."""
    criteria = _criteria(transcript)
    rules = RUBRIC.format(
        to_find=" and ".join(transcript.to_find) or "nothing",
        shown=SHOWN[transcript.view],
        criteria="\n".join(f"- {name}: {text}" for name, text in criteria.items()),
        example="{" + ", ".join(f'"{name}": 0.5' for name in criteria) + "}",
    )
    right = [f"Right website: {transcript.host}", f"Right operation: {transcript.operation}"]
    right += [f"Stated: {wish.wording}" for wish in transcript.stated.values()]
    right += [f"Preference: {wish.wording}" for wish in transcript.masked.values()]
    said = "\n".join([f"Task: {transcript.text}", *right, "", fence(tell(transcript))])
    messages = (
        {"role": "system", "content": f"{rules}\n\n{FENCE_NOTE}"},
        {"role": "user", "content": said},
    )
    return Request(messages=messages, sampling={"temperature": 0.0})


def read_scores(reply: Reply, transcript: Transcript) -> Scores | None:
    """The scores in a reply; None where it cannot be read, or one is missing or off the scale."""
    form = create_model("Judgement", **dict.fromkeys(_criteria(transcript), (Score, ...)))
    try:
        return Scores(**read_reply(reply, form).model_dump())
    except ValueError:
        return None


def _criteria(transcript: Transcript) -> dict[str, str]:
    """What is scored: retrieval only where the view shows it and the text leaves something out."""
    found = {}
    if transcript.view == "reasoning_aware":
        parts = {"website_retrieval": "website", "preference_retrieval": "preferences"}
        found = {name: text for name, text in RETRIEVAL.items() if parts[name] in transcript.to_find}
    return found | USE
