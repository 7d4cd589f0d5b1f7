"""The batched decoder against transformers' own forward pass and generation, and rollouts token by token."""

import threading
import warnings
from collections import deque
from dataclasses import replace
from functools import cache

import pytest
import torch

from pwagents.errors import InfrastructureError
from pwagents.lm.small import make_small_model
from pwagents.orion import play as decoder_module
from pwagents.orion.agent import orion_tools
from pwagents.orion.play import BatchDecoder, orion_example, orion_prompt, play_rollouts
from pwagents.orion.settings import Decoding
from pwagents.web.environment import MAX_STEPS, UserReply

from .. import paper_standins
from .world import SPLIT, make_setting, make_teacher

PROMPTS = ([5, 6, 7, 8, 9, 40, 41], [60, 61, 62], [5, 6, 7, 8, 80, 81, 82, 83, 84, 85, 86])
MOST = 10


def with_grouped_heads(tokenizer):
    """Three heads that share their keys and values."""
    from transformers import Qwen2ForCausalLM

    config = make_small_model(tokenizer, 1).config
    config.num_key_value_heads = 1
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config)


def with_adapter(tokenizer):
    """An adapter that does something."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # peft's own use
        model = get_peft_model(make_small_model(tokenizer, 1), LoraConfig(target_modules="all-linear", r=4))
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.1)
    return model


MODELS = {
    "small": lambda tokenizer: make_small_model(tokenizer, 1),
    "grouped heads": with_grouped_heads,
    "adapter": with_adapter,
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request, tokenizer):
    return MODELS[request.param](tokenizer).eval()


def generate(model, ids, end, most=MOST):
    """What transformers writes after ``ids``, greedily."""
    return _generated(model, tuple(ids), end, most)


@cache  # several tests compare with the same
def _generated(model, ids, end, most):
    told = torch.tensor([ids])
    options = {"do_sample": False, "eos_token_id": end, "max_new_tokens": most, "pad_token_id": 0}
    with torch.inference_mode():
        written = model.generate(input_ids=told, attention_mask=torch.ones_like(told), **options)
    return written[0, len(ids) :].tolist()


def logprobs_of(model, ids, begin, temperature):
    """Of ``ids[begin:]``, by a plain forward pass over all of them."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, begin - 1 : -1]
    told = (logits / temperature).log_softmax(-1)
    return told.gather(1, torch.tensor(ids[begin:])[:, None])[:, 0]


def test_greedy_turns_are_those_of_generate_also_after_answers_of_other_lengths(model):
    end = generate(model, PROMPTS[0], end=None)[3]  # one row at least ends early
    texts = [list(prompt) for prompt in PROMPTS]
    decoder, unread, rows = BatchDecoder(model, 3), texts, [0, 1, 2]
    lengths = set()
    for answers in ([[50], [51, 52, 53, 54], [55, 56]], [[], [57], [58]]):
        with torch.inference_mode():
            written = decoder.write(unread, [0.0] * len(rows), MOST, end, None)
        assert [turn for turn, _ in written] == [generate(model, texts[row], end) for row in rows]
        lengths |= {len(turn) for turn, _ in written}
        decoder.keep(rows[1:] if len(rows) == 3 else [0, 1])
        written, rows = written[-2:], [1, 2]
        unread = [[turn[-1], *answers[row]] for row, (turn, _) in zip(rows, written, strict=True)]
        for row, (turn, _) in zip(rows, written, strict=True):
            texts[row] = [*texts[row], *turn, *answers[row]]
    assert MOST in lengths and min(lengths) < MOST


@pytest.mark.parametrize(("portion", "beside"), [(1, 64), (9, 2), (2048, 1), (2048, 64)])
def test_rows_keep_their_own_text_over_turns_that_end_at_different_tokens(
    model, portion, beside, monkeypatch
):
    monkeypatch.setattr("pwagents.lm.decode.PORTION", portion)
    monkeypatch.setattr("pwagents.lm.decode.BESIDE", beside)
    texts = [list(range(5 + row, 9 + 4 * row)) for row in range(5)]
    end = generate(model, texts[2], end=None)[1]  # a row in the middle ends first
    decoder, unread, rows = BatchDecoder(model, 5), texts, [0, 1, 2, 3, 4]
    for kept in ([0, 1, 2, 3, 4], [0, 2, 3], [0, 1, 2], [1]):
        with torch.inference_mode():
            turns = [turn for turn, _ in decoder.write(unread, [0.0] * len(rows), MOST, end, None)]
        assert turns == [generate(model, texts[row], end) for row in rows]
        decoder.keep(kept)
        rows, turns = [rows[i] for i in kept], [turns[i] for i in kept]
        answers = [list(range(20, 21 + 3 * (row % 3))) for row in rows]
        unread = [[turn[-1], *answer] for turn, answer in zip(turns, answers, strict=True)]
        for row, turn, answer in zip(rows, turns, answers, strict=True):
            texts[row] = [*texts[row], *turn, *answer]


def test_equal_first_texts_are_read_once(model):
    prompts, read = [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]], []
    embedding = model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    with torch.inference_mode():
        written = BatchDecoder(model, 4).write(prompts, [0.0] * 4, 2, -1, None)
    hook.remove()
    assert [turn for turn, _ in written] == [generate(model, p, end=None, most=2) for p in prompts]
    assert read == [len(PROMPTS[0]) + len(PROMPTS[1]), 4]  # then one token of each row


@pytest.mark.parametrize("most", [1, MOST])
def test_a_turn_may_be_one_token_long(model, most):
    end = generate(model, PROMPTS[0], end=None)[0]
    for prompts in ([PROMPTS[0]], [PROMPTS[0]] * 3, PROMPTS):
        with torch.inference_mode():
            turns = [turn for turn, _ in BatchDecoder(model, len(prompts)).write(
                prompts, [0.0] * len(prompts), most, end, None)]  # fmt: skip
        assert turns == [generate(model, prompt, end, most) for prompt in prompts] and turns[0] == [end]


def test_log_probabilities_are_those_of_a_plain_forward_pass_at_each_rows_temperature(model):
    temperatures = [0.6, 1.3, 0.0]
    with torch.inference_mode():
        chance = torch.Generator().manual_seed(0)
        written = BatchDecoder(model, 3).write(PROMPTS, temperatures, MOST, 2, chance)
    for prompt, temperature, (turn, logprobs) in zip(PROMPTS, temperatures, written, strict=True):
        expected = logprobs_of(model, [*prompt, *turn], len(prompt), temperature or 1.0)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-5, rtol=0)
    assert written[2][0] == generate(model, PROMPTS[2], 2), "the row at temperature 0 is greedy"


def test_tokens_come_as_often_as_the_model_says(tokenizer):
    model, rows = make_small_model(tokenizer, 1).eval(), 4000
    with torch.inference_mode():
        written = BatchDecoder(model, rows).write(
            [PROMPTS[1]] * rows, [0.5] * rows, 1, 2, torch.Generator().manual_seed(1)
        )
        logits = model(torch.tensor([PROMPTS[1]])).logits[0, -1]
    expected = (logits / 0.5).softmax(-1)
    found = torch.bincount(torch.tensor([turn[0] for turn, _ in written]), minlength=len(logits)) / rows
    error = (expected * (1 - expected) / rows).sqrt()
    assert expected.max() > 0.02
    assert ((found - expected).abs() < 5 * error + 1e-3).all()


# Rollouts


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
