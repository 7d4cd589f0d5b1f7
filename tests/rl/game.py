"""Tiny games for the trainers: one token a turn, played by a tiny random model.

A turn is one sampled token. In the bandit the word said decides the reward; in the second game whatever is
said first, a cue comes back (two tokens that are not learned from), and only the answer to the cue pays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from pwagents.portable import one_core
from pwagents.rl.rollout import Rollout
from pwagents.schema import Action, Observation, Review, Step, Task, Trajectory
from pwagents.seeds import rng
from pwagents.settings import GrpoSettings, PpoSettings
from pwagents.shop.environment import BeliefState

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))
WORDS, PRICES, RIGHT, SETTINGS = CIRCUMSTANCES["game"].values()
CONFIGS = {"grpo": GrpoSettings, "ppo": PpoSettings}


def make_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")


def make_model(seed: int = 0):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    shape |= {"num_key_value_heads": 2, "tie_word_embeddings": False}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(WORDS), **shape, **ends))


def save_model(folder: Path) -> Path:
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_tasks(n: int) -> list[Task]:
    fields = {"user_id": "u", "type": "search", "timestamp": 1, "target": "B1", "review": Review(rating=5)}
    return [Task(task_id=f"t{i}", instruction="go", **fields) for i in range(n)]


def pay_bandit(episodes) -> dict[str, list[list[float]]]:
    words = [[step.action.arguments["content"] for step in played.steps] for _, played in episodes]
    return {"price": [[PRICES.get(word, 0.0) for word in each] for each in words]}


def pay_cue(episodes) -> dict[str, list[list[float]]]:
    """Nothing for the first turn, 1 for the right answer to the cue."""
    pairs = [played.steps for _, played in episodes]
    right = [b.action.arguments["content"] == RIGHT[a.observation.text] for a, b in pairs]
    return {"task": [[0.0, float(each)] for each in right]}


def _play(model, tasks: Sequence[Task], seed: int, turns: int) -> list[Rollout]:
    """Prompts have different lengths, as real ones do."""
    import torch

    chance, draws = torch.Generator().manual_seed(seed), rng(seed, "cues")
    assert not model.training, "nothing drops out while it plays"
    begin, go = WORDS.index("begin"), WORDS.index("go")
    prompts = [[begin, *[go] * (1 + int(task.task_id[1:]) % 3)] for task in tasks]
    cues = [str(draws.choice(list(RIGHT))) for _ in tasks]
    texts, logprobs = [list(prompt) for prompt in prompts], [[] for _ in tasks]
    for turn in range(turns):
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
        last = torch.tensor([len(text) - 1 for text in texts])
        with torch.no_grad():
            scores = model(ids).logits[torch.arange(len(ids)), last].log_softmax(-1)
        for i, token in enumerate(torch.multinomial(scores.exp(), 1, generator=chance)[:, 0].tolist()):
            answer = [WORDS.index(cues[i]), WORDS.index("say")] if turn + 1 < turns else []
            texts[i] += [token, *answer]
            logprobs[i] += [float(scores[i, token])] + [0.0] * len(answer)
    rollouts = []
    for task, prompt, text, own, cue in zip(tasks, prompts, texts, logprobs, cues, strict=True):
        completion = text[len(prompt) :]
        mask, numbers = [1, 0, 0, 1][: len(completion)], [0, 0, 0, 1][: len(completion)]
        actions = [
            Action(name="respond", arguments={"content": WORDS[token]})
            for token, sampled in zip(completion, mask, strict=True)
            if sampled
        ]
        steps = tuple(Step(action=action, observation=Observation(text=cue)) for action in actions)
        trajectory = Trajectory(task_id=task.task_id, user_id="u", type="search", target="B1", steps=steps)
        states = tuple(BeliefState("u", "go", "go", None, (), steps[:i]) for i in range(turns))
        rollouts.append(Rollout(prompt, completion, mask, own, numbers, states, trajectory))
    return rollouts


# One turn; and two with a cue in between.
play_bandit, play_cue = partial(_play, turns=1), partial(_play, turns=2)


def said(model, *words: str) -> dict[str, float]:
    """Each word's probability after the given ones."""
    import torch

    with torch.no_grad():
        ids = torch.tensor([[WORDS.index(word) for word in words]])
        return dict(zip(WORDS, model(ids).logits[0, -1].softmax(-1).tolist(), strict=True))


@dataclass(frozen=True)
class Game:
    """A :class:`pwagents.rl.rollout.Game` of some tasks."""

    play_model: Callable
    pay: Callable
    measure: Callable = field(default=lambda model: {})
    tasks: Sequence[Task] = field(default_factory=lambda: make_tasks(6))

    def play(self, model, tokenizer, tasks, seed):
        return self.play_model(model, tasks, seed)

    def rewards(self, episodes):
        return self.pay(episodes)

    def evaluate(self, model, tokenizer):
        return self.measure(model)


BANDIT, CUE = Game(play_bandit, pay_bandit), Game(play_cue, pay_cue)


def train(method: str, folder: Path, start=None, game: Game = CUE, **changed) -> Path:
    """Train on a game from a model, its folder, or a new one; return the folder of what was trained."""
    from pwagents.rl.train import train_policy

    folder.mkdir(exist_ok=True)
    with one_core():
        config = CONFIGS[method](**SETTINGS | changed)
        train_policy(start or make_model(), make_tokenizer(), game, config, folder)
    return folder / "model"
