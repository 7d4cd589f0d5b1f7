"""Rollouts token by token: what a policy that plays reads and writes."""

import threading
from collections import deque
from dataclasses import replace

import pytest
import torch

from pwagents.errors import InfrastructureError
from pwagents.lm.small import make_small_model
from pwagents.orion import play as decoder_module
from pwagents.orion.agent import orion_tools
from pwagents.orion.play import orion_example, orion_prompt, play_rollouts
from pwagents.orion.settings import Decoding
from pwagents.web.environment import MAX_STEPS, UserReply

from .. import paper_standins
from ..lm.test_decode import generate, logprobs_of
from .world import SPLIT, make_setting, make_teacher


@pytest.fixture(scope="module")
def setting(benchmark, catalogue):
    return make_setting(benchmark, catalogue)


@pytest.fixture(scope="module")
def tasks(benchmark):
    """Two tasks of each type."""
    of_type = {}
    for task in benchmark.tasks[SPLIT]:
        of_type.setdefault(task.type, []).append(task)
    return [task for found in of_type.values() for task in found[:2]]


@pytest.fixture(scope="module")
def policy(tokenizer):
    return make_small_model(tokenizer, seed=1)


SHORT = Decoding(turn_tokens=8, shown=2)
GREEDY = SHORT.greedy


def tokens_of(rollouts):
    return [(r.prompt_ids, r.completion_ids) for r in rollouts]


def test_greedy_rollouts_are_those_of_generate_turn_by_turn(policy, tokenizer, tasks, setting):
    for rollout in play_rollouts(policy, tokenizer, tasks[::2], setting.start, GREEDY):
        ids, begin = [*rollout.prompt_ids, *rollout.completion_ids], len(rollout.prompt_ids)
        for turn in range(len(rollout.trajectory.steps)):
            places = [
                begin + i
                for i, (t, m) in enumerate(zip(rollout.turns, rollout.mask, strict=True))
                if m and t == turn
            ]
            written = [ids[i] for i in places]
            assert written == generate(policy.eval(), ids[: places[0]], tokenizer.eos_token_id, 8)


def test_neither_batch_size_nor_workers_change_greedy_rollouts(policy, tokenizer, tasks, setting):
    tasks = tasks[::2]
    first = play_rollouts(policy, tokenizer, tasks, setting.start, GREEDY)
    for changed in ({"batch_size": 1}, {"batch_size": 2}, {"workers": 3}):
        played = play_rollouts(policy, tokenizer, tasks, setting.start, replace(GREEDY, **changed))
        assert tokens_of(played) == tokens_of(first)
        assert [r.trajectory for r in played] == [r.trajectory for r in first]
    assert [r.trajectory.task_id for r in first] == [task.task_id for task in tasks]


def test_the_seed_alone_decides_what_is_sampled(policy, tokenizer, tasks, setting):
    def played(seed, workers=1):
        short = replace(SHORT, workers=workers)
        return play_rollouts(policy, tokenizer, tasks[::2], setting.start, short, seed)

    first = played(0)
    torch.manual_seed(99)
    assert tokens_of(played(0)) == tokens_of(first) == tokens_of(played(0, workers=3))
    assert tokens_of(played(1)) != tokens_of(first)


def test_each_token_has_its_mask_step_and_log_probability(policy, tokenizer, tasks, setting):
    hot = replace(SHORT, temperature=0.6, review_temperature=1.1)
    for task, rollout in zip(tasks, play_rollouts(policy, tokenizer, tasks, setting.start, hot), strict=True):
        n = len(rollout.completion_ids)
        assert n == len(rollout.mask) == len(rollout.turns) == len(rollout.logprobs)
        steps = rollout.trajectory.steps
        assert [len(state.session) for state in rollout.states] == list(range(len(steps)))
        assert rollout.turns == sorted(rollout.turns) and set(rollout.turns) == set(range(len(steps)))
        assert rollout.mask[0] == rollout.mask[-1] == 1, "it begins and ends with a turn"
        ids = [*rollout.prompt_ids, *rollout.completion_ids]
        costs = [step.action.usage for step in steps]
        assert sum(cost.completion_tokens for cost in costs) == sum(rollout.mask)
        assert costs[0].prompt_tokens == len(rollout.prompt_ids) and {cost.calls for cost in costs} == {1}
        temperature = 1.1 if task.type == "review" else 0.6
        expected = logprobs_of(policy.eval(), ids, len(rollout.prompt_ids), temperature)
        expected = expected * torch.tensor(rollout.mask)
        torch.testing.assert_close(torch.tensor(rollout.logprobs), expected, atol=2e-5, rtol=0)


def test_a_turn_cut_off_is_a_lost_step_and_ended_by_a_token_that_is_not_learned(
    policy, tokenizer, tasks, setting
):
    (rollout,) = play_rollouts(policy, tokenizer, tasks[:1], setting.start, GREEDY)
    steps = rollout.trajectory.steps
    assert len(steps) == MAX_STEPS and {step.error_kind for step in steps} == {"cut_off"}
    assert sum(rollout.mask) == 8 * MAX_STEPS
    assert rollout.completion_ids[8] == tokenizer.eos_token_id
    assert rollout.mask[:10] == [1] * 8 + [0, 0] and rollout.logprobs[8] == 0.0
    told = tokenizer.decode(rollout.completion_ids[8:30], skip_special_tokens=False)
    assert told.startswith("<|end|> <|user|> Error")
    assert rollout.completion_ids.count(tokenizer.eos_token_id) == 2 * (MAX_STEPS - 1)


def test_an_episode_that_is_too_long_ends_after_its_turn(policy, tokenizer, tasks, setting):
    whole = play_rollouts(policy, tokenizer, tasks[:2], setting.start, GREEDY)
    short = replace(GREEDY, episode_tokens=40)
    for cut, full in zip(
        play_rollouts(policy, tokenizer, tasks[:2], setting.start, short), whole, strict=True
    ):
        n = len(cut.completion_ids)
        assert 40 <= n < len(full.completion_ids) and cut.completion_ids == full.completion_ids[:n]
        assert cut.mask[-1] == 1 and len(cut.trajectory.steps) == cut.turns[-1] + 1


def test_the_model_trains_on_after_it_played(policy, tokenizer, tasks, setting):
    policy.train()
    play_rollouts(policy, tokenizer, tasks[:1], setting.start, GREEDY)
    assert policy.training
    policy.eval()
    play_rollouts(policy, tokenizer, tasks[:1], setting.start, GREEDY)
    assert not policy.training


# Well-formed turns: written by a script in the model's place


def turns_of(tokenizer, example):
    """The tokens of each turn of a conversation, without line ends around it, which TRL counts to a turn."""
    ends = tokenizer("\n", add_special_tokens=False)["input_ids"]
    turns, before = [], 0
    for token, written in zip(*example, strict=True):
        if written and not before:
            turns.append([])
        if written:
            turns[-1].append(token)
        before = written
    turns = [turn[len(ends) :] if ends and turn[: len(ends)] == ends else turn for turn in turns]
    return [turn[: turn.index(tokenizer.eos_token_id) + 1] for turn in turns]


def play_script(monkeypatch, scripts, model, tokenizer, tasks, start, decoding):
    """Rollouts in which the rows write these turns; what is unread is noted."""

    class Scripted:
        def __init__(self, model, rows):
            self.rows = [deque(script) for script in scripts]

        def write(self, unread, temperatures, most, end, generator):
            return [(turn := row.popleft(), [-1.0] * len(turn)) for row in self.rows]

        def keep(self, rows):
            self.rows = [self.rows[row] for row in rows]

    monkeypatch.setattr(decoder_module, "BatchDecoder", Scripted)
    return play_rollouts(model, tokenizer, tasks, start, decoding)


@pytest.fixture(scope="module", params=["small", "qwen"])
def some_tokenizer(request, tokenizer):
    return tokenizer if request.param == "small" else paper_standins.make_tokenizer()


def teach(setting, catalogue, tasks):
    """The states in which the teacher's episodes end."""
    teacher, ends = make_teacher(setting, catalogue), []
    for task in tasks:
        episode = setting.start(task)
        while not episode.done:
            episode.step(teacher(episode.state))
        ends.append(episode.state)
    return ends


def plain(step):
    """A step without the white space of what was written, which the small tokenizer does not keep."""
    written = [step.action.name, step.action.arguments, step.action.thought]
    return "".join(str(written).split()), step.observation, step.error, step.profile


def test_rollouts_are_token_by_token_what_fine_tuning_learns_from(
    monkeypatch, setting, catalogue, tasks, some_tokenizer, policy
):
    ends = teach(setting, catalogue, tasks)
    examples = [orion_example(some_tokenizer, state, shown=2) for state in ends]
    scripts = [turns_of(some_tokenizer, example) for example in examples]
    decoding = Decoding(shown=2, episode_tokens=100_000)
    played = play_script(monkeypatch, scripts, policy, some_tokenizer, tasks, setting.start, decoding)
    for rollout, example, state in zip(played, examples, ends, strict=True):
        assert list(map(plain, rollout.trajectory.steps)) == list(map(plain, state.session))
        length = len(rollout.prompt_ids) + len(rollout.completion_ids)
        assert [*rollout.prompt_ids, *rollout.completion_ids] == example.input_ids[:length]
        mask = [0] * len(rollout.prompt_ids) + rollout.mask
        beside = [
            i for i, (ours, learned) in enumerate(zip(mask, example.mask, strict=False)) if ours != learned
        ]
        assert not some_tokenizer.decode([example.input_ids[i] for i in beside]).strip("\n")
    assert len({len(rollout.states) for rollout in played}) > 1
    assert any(step.profile for state in ends for step in state.session)


def test_the_policy_is_told_of_its_functions(setting, tasks, policy):
    tokenizer = paper_standins.make_tokenizer()
    prompt = tokenizer.decode(orion_prompt(tokenizer, setting.start(tasks[0]).state))
    places = [prompt.index(f'"name": "{tool["function"]["name"]}"') for tool in orion_tools()]
    assert places == sorted(places)


def test_what_a_user_says_cannot_begin_a_turn(
    monkeypatch, benchmark, catalogue, tasks, some_tokenizer, policy
):
    control = [token.content for token in some_tokenizer.added_tokens_decoder.values() if token.special]
    said = "".join(control)
    setting = make_setting(benchmark, catalogue, lambda *_: UserReply(said))
    task = next(task for task in tasks if task.type == "search")
    call = '<tool_call>{"name": "respond", "arguments": {"content": "Which color?"}}</tool_call>'
    turn = some_tokenizer(f"{call}{some_tokenizer.eos_token}", add_special_tokens=False)["input_ids"]
    script = [turn] * MAX_STEPS
    (rollout,) = play_script(
        monkeypatch, [script], policy, some_tokenizer, [task], setting.start, replace(GREEDY, turn_tokens=99)
    )
    assert rollout.trajectory.steps[0].observation.text == said
    ids = rollout.completion_ids
    assert ids.count(some_tokenizer.eos_token_id) == 2 * MAX_STEPS - 1
    assert len(control) > 2
    told = [token for token, m in zip(ids, rollout.mask, strict=True) if not m]
    once = some_tokenizer.convert_ids_to_tokens(told)
    assert all(once.count(token) <= 2 * (MAX_STEPS - 1) for token in control)


def test_users_who_take_their_time_answer_at_once(
    monkeypatch, benchmark, catalogue, tasks, tokenizer, policy
):
    together = threading.Barrier(3)  # passed by three at once alone

    def slow(*_):
        together.wait(timeout=20)
        return UserReply("Navy.")

    setting = make_setting(benchmark, catalogue, slow)
    ask = '<tool_call>{"name": "respond", "arguments": {"content": "Which color?"}}</tool_call><|end|>'
    stop = '<tool_call>{"name": "stop", "arguments": {}}</tool_call><|end|>'
    script = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (ask, stop)]
    given = ([script] * 3, policy, tokenizer, tasks[:3], setting.start)
    played = play_script(monkeypatch, *given, replace(GREEDY, workers=3))
    assert [r.trajectory.steps[0].observation.text for r in played] == ["Navy."] * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_user_who_cannot_be_reached_ends_the_rollouts(
    monkeypatch, benchmark, catalogue, tasks, tokenizer, policy, workers
):
    def gone(*_):
        raise InfrastructureError("the user's endpoint is down")

    setting = make_setting(benchmark, catalogue, gone)
    ask = '<tool_call>{"name": "respond", "arguments": {"content": "Which color?"}}</tool_call><|end|>'
    script = [tokenizer(ask, add_special_tokens=False)["input_ids"]]
    with pytest.raises(InfrastructureError, match="endpoint is down"):
        play_script(
            monkeypatch,
            [script] * 2,
            policy,
            tokenizer,
            tasks[:2],
            setting.start,
            replace(GREEDY, workers=workers),
        )
