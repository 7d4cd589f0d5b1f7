"""A fine-tuning of a small random model, to be killed."""

import random
from dataclasses import replace
from pathlib import Path

from pwagents.lm.settings import SftSettings
from pwagents.lm.sft import train_on
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.lm.tokens import Example

SIZE = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
CONFIG = SftSettings(max_steps=40, per_device_train_batch_size=4, learning_rate=1e-2, save_steps=10, seed=3)


def examples(tokenizer, count=60):
    """Sequences in which the assistant repeats what was said."""
    draw, made = random.Random(0), []
    for _ in range(count):
        said = [draw.randrange(60, 90) for _ in range(draw.randrange(3, 12))]
        ids = [*said, *said, tokenizer.eos_token_id]
        made.append(Example(ids, [0] * len(said) + [1] * (len(said) + 1)))
    return made


def train(folder: Path, **changes):
    tokenizer = make_tokenizer()
    model = make_small_model(tokenizer, 0, SIZE)
    return train_on(model, tokenizer, examples(tokenizer), replace(CONFIG, **changes), folder)
