"""Rollouts token by token: what a policy that plays reads and writes."""

import threading
from collections import deque
from itertools import groupby

import pytest
import torch

from pwagents.errors import InfrastructureError
from pwagents.llm.local_model import LocalModel
from pwagents.lm.base import CHAT_TEMPLATE
from pwagents.orion import play as decoder_module
from pwagents.orion.agent import OrionAgent, orion_messages
from pwagents.orion.play import next_actions, orion_example, play_rollouts
from pwagents.orion.teacher import make_teacher
from pwagents.settings import Decoding
from pwagents.shop.environment import MAX_STEPS, UserReply

from .. import paper_standins
from ..lm.test_decode import logprobs_of
from .small_study import play

SHORT = Decoding(turn_tokens=8, shown=2)
GREEDY = SHORT.greedy


@pytest.fixture(scope="module")
def tasks(train_tasks):
    """Two tasks of each type."""
    return [task for some in train_tasks.values() for task in some[:2]]


@pytest.fixture(scope="module")
def loaded(tiny):
    return LocalModel(tiny).loaded


@pytest.fixture(scope="module")
def roll(study, loaded):
    """``roll(tasks, decoding)``: rollouts of the tiny model."""

    def played(tasks, decoding, seed=0, start=study.start):
        return play_rollouts(loaded.model, loaded.tokenizer, tasks, start, decoding, seed)

    return played


def tokens_of(rollouts):
    return [(r.prompt_ids, r.completion_ids, r.trajectory) for r in rollouts]


def test_greedy_play_is_what_the_same_model_replies_to_the_agent(tiny, tasks, roll):
    """Which reads each conversation anew."""
    agent = OrionAgent(LocalModel(tiny), shown=2, sampling={"temperature": 0, "max_tokens": 8})
    for rollout in roll(tasks[::2], GREEDY):
        told = next_actions(tiny, [orion_messages(state, 2) for state in rollout.states], GREEDY)
        for state, other in zip(rollout.states, told, strict=True):
            ours = agent(state)
            assert (ours.problem, ours.thought.strip()) == (other.problem, other.thought.strip())
        assert told[0] == rollout.trajectory.steps[0].action


def test_batches_workers_and_seeds(tasks, roll):
    first, hot = roll(tasks, GREEDY), roll(tasks, SHORT)
    for changed in ({"batch_size": 1}, {"batch_size": 4}, {"workers": 3}):
        assert tokens_of(roll(tasks, GREEDY.changed(**changed))) == tokens_of(first)
    torch.manual_seed(99)
    assert tokens_of(roll(tasks, SHORT.changed(workers=3))) == tokens_of(hot) != tokens_of(first)
    assert tokens_of(roll(tasks, SHORT, seed=1)) != tokens_of(hot)


def test_each_token_has_its_mask_step_and_log_probability(tasks, roll, loaded):
    hot = SHORT.changed(temperature=0.6)
    rollouts = roll(tasks, hot)
    for task, rollout in zip(tasks, rollouts, strict=True):
        n, steps = len(rollout.completion_ids), rollout.trajectory.steps
        assert n == len(rollout.mask) == len(rollout.turns) == len(rollout.logprobs)
        assert [len(state.session) for state in rollout.states] == list(range(len(steps)))
        assert rollout.turns == sorted(rollout.turns) and set(rollout.turns) == set(range(len(steps)))
        assert rollout.mask[0] == rollout.mask[-1] == 1, "it begins and ends with a turn"
        costs = [step.action.usage for step in steps]
        assert sum(cost.completion_tokens for cost in costs) == sum(rollout.mask)
        assert costs[0].prompt_tokens == len(rollout.prompt_ids) and {cost.calls for cost in costs} == {1}
        ids = [*rollout.prompt_ids, *rollout.completion_ids]
        temperature = 1.0 if task.type == "review" else 0.6
        expected = logprobs_of(loaded.model, ids, len(rollout.prompt_ids), temperature)
        expected = expected * torch.tensor(rollout.mask)
        torch.testing.assert_close(torch.tensor(rollout.logprobs), expected, atol=2e-5, rtol=0)


def test_a_turn_cut_off_and_a_conversation_too_long_end_nothing_but_themselves(tasks, roll, loaded):
    whole = roll(tasks[:2], GREEDY)
    rollout, end = whole[0], loaded.tokenizer.eos_token_id
    assert {step.error_kind for step in rollout.trajectory.steps} == {"cut_off"}
    assert len(rollout.trajectory.steps) == MAX_STEPS and sum(rollout.mask) == 8 * MAX_STEPS
    assert rollout.completion_ids[8] == end and rollout.mask[8:10] == [0, 0], "ended by a token not learned"
    assert rollout.completion_ids.count(end) == 2 * (MAX_STEPS - 1)
    for cut, full in zip(roll(tasks[:2], GREEDY.changed(episode_tokens=40)), whole, strict=True):
        n = len(cut.completion_ids)
        assert 40 <= n < len(full.completion_ids) and cut.completion_ids == full.completion_ids[:n]
        assert cut.mask[-1] == 1 and cut.trajectory.end == "tokens"
        assert len(cut.trajectory.steps) == cut.turns[-1] + 1


def test_what_is_longer_than_the_model_reads_is_cut_or_ends_its_own_episode(
    tasks, roll, loaded, study, monkeypatch
):
    """An instruction that fills the prompt loses its middle; of two episodes the longer ends alone."""
    whole = roll(tasks[:2], GREEDY)
    room = len(whole[0].prompt_ids) + 60
    monkeypatch.setattr(loaded.model.config, "max_position_embeddings", room)

    def start(task):
        words = f"{task.instruction} " + "lamp " * (20_000 if task is tasks[0] else 0)
        return study.start(task.model_copy(update={"instruction": words}), context=study.context(task))

    long, other = roll(tasks[:2], GREEDY, start=start)
    assert len(long.prompt_ids) == room - 8 and long.prompt_ids[:10] == whole[0].prompt_ids[:10]
    assert long.prompt_ids[-5:] == whole[0].prompt_ids[-5:]
    assert long.trajectory.end == "tokens" and len(long.trajectory.steps) == 1
    assert len(other.prompt_ids) + len(other.completion_ids) <= room and len(other.trajectory.steps) > 1


# Well-formed turns: written by a script in the model's place


@pytest.fixture
def play_script(monkeypatch, loaded):
    def run(scripts, tokenizer, tasks, start, decoding):
        """Rollouts in which the rows write these turns."""

        class Scripted:
            room = 10**6

            def __init__(self, model, rows):
                self.rows = [deque(script) for script in scripts]

            def write(self, unread, temperatures, most, end, generator):
                return [(turn := row.popleft(), [-1.0] * len(turn)) for row in self.rows]

            def keep(self, rows):
                self.rows = [self.rows[row] for row in rows]

        monkeypatch.setattr(decoder_module, "BatchDecoder", Scripted)
        return play_rollouts(loaded.model, tokenizer, tasks, start, decoding)

    return run


@pytest.fixture(scope="module", params=["small", "qwen", "smollm2"])
def some_tokenizer(request, tokenizer):
    chat_ml = paper_standins.make_tokenizer()
    if request.param == "smollm2":
        chat_ml.chat_template = CHAT_TEMPLATE
    return tokenizer if request.param == "small" else chat_ml


def turns_of(tokenizer, example):
    """The tokens of each turn of a conversation, without line ends around it, which TRL counts to a turn."""
    ends = tokenizer("\n", add_special_tokens=False)["input_ids"]
    runs = groupby(zip(*example, strict=True), key=lambda pair: pair[1])
    turns = [[token for token, _ in run] for written, run in runs if written]
    turns = [turn[len(ends) :] if ends and turn[: len(ends)] == ends else turn for turn in turns]
    return [turn[: turn.index(tokenizer.eos_token_id) + 1] for turn in turns]


def bare(step):
    """A step without the white space of what was written, which the small tokenizer does not keep."""
    written = [step.action.name, step.action.arguments, step.action.thought]
    return "".join(str(written).split()), step.observation, step.error, step.profile


def test_tokens_and_masks_are_those_of_the_chat_template_that_fine_tuning_learns_from(
    play_script, study, tasks, some_tokenizer
):
    ends = [play(study, make_teacher(study, 0, i % 3), task)[0][-1] for i, task in enumerate(tasks)]
    examples = [orion_example(some_tokenizer, state, shown=2) for state in ends]
    scripts = [turns_of(some_tokenizer, example) for example in examples]
    decoding = Decoding(shown=2, episode_tokens=100_000)
    played = play_script(scripts, some_tokenizer, tasks, study.start, decoding)
    for rollout, example, state in zip(played, examples, ends, strict=True):
        assert list(map(bare, rollout.trajectory.steps)) == list(map(bare, state.session))
        length = len(rollout.prompt_ids) + len(rollout.completion_ids)
        assert [*rollout.prompt_ids, *rollout.completion_ids] == example.input_ids[:length]
        masks = zip([0] * len(rollout.prompt_ids) + rollout.mask, example.mask, strict=False)
        beside = [example.input_ids[i] for i, (ours, learned) in enumerate(masks) if ours != learned]
        assert not some_tokenizer.decode(beside).strip("\n")
    assert len({len(rollout.states) for rollout in played}) > 1
    assert any(step.profile for state in ends for step in state.session)


def test_users_answer_at_once_and_one_who_cannot_be_reached_ends_the_rollouts(
    play_script, study, tasks, tokenizer
):
    text = '<tool_call>{"name": "respond", "arguments": {"content": "Which color?"}}</tool_call><|end|>'
    turn, together = tokenizer(text, add_special_tokens=False)["input_ids"], threading.Barrier(3)

    def slow(*_):
        together.wait(timeout=20)  # passed by three at once alone
        return UserReply("Navy.")

    def gone(*_):
        raise InfrastructureError("the user's endpoint is down")

    def played(user, workers):
        def start(task):
            episode = study.start(task)
            episode.user = user
            return episode

        decoding = GREEDY.changed(workers=workers)
        return play_script(3 * [MAX_STEPS * [turn]], tokenizer, tasks[:3], start, decoding)

    assert [r.trajectory.steps[0].observation.text for r in played(slow, 3)] == ["Navy."] * 3
    for workers in (1, 2):
        with pytest.raises(InfrastructureError, match="endpoint is down"):
            played(gone, workers)
