"""Turns of many conversations at once by vLLM, which has its own key-value cache."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class VllmDecoder:
    """The methods of :class:`pwagents.lm.decode.BatchDecoder`.

    TRL starts vLLM and gives it the weights before each step.

    A turn's request holds the whole conversation. What of it was read before is in vLLM's prefix cache: to
    send it again costs little.

    Args:
        engine: a ``vllm.LLM``, as TRL starts it: it must tell log-probabilities at the temperature sampled at
            (``logprobs_mode="processed_logprobs"``).
        rows: conversations at once.
    """

    def __init__(self, engine: Any, rows: int):
        self.engine = engine
        self.texts: list[list[int]] = [[] for _ in range(rows)]  # of each row, the tokens up to its last turn

    def write(
        self,
        unread: Sequence[list[int]],
        temperatures: Sequence[float],
        most: int,
        end: int,
        generator: "torch.Generator",
    ) -> list[tuple[list[int], list[float]]]:
        """As :meth:`pwagents.lm.decode.BatchDecoder.write`; vLLM's chance is seeded by ``generator``, turn by
        turn."""
        import torch
        from vllm import SamplingParams

        self.texts = [text + list(ids) for text, ids in zip(self.texts, unread, strict=True)]
        seeds = torch.randint(2**31, (len(self.texts),), generator=generator).tolist()
        fixed = {"max_tokens": most, "stop_token_ids": [end], "logprobs": 0}
        sampling = [
            SamplingParams(temperature=temperature, seed=seed, **fixed)
            for temperature, seed in zip(temperatures, seeds, strict=True)
        ]
        prompts = [{"prompt_token_ids": text} for text in self.texts]
        outputs = self.engine.generate(prompts, sampling_params=sampling, use_tqdm=False)
        turns = []
        for i, output in enumerate(outputs):
            ids, values = list(output.outputs[0].token_ids), output.outputs[0].logprobs
            turns.append((ids, [of[token].logprob for token, of in zip(ids, values, strict=True)]))
            self.texts[i] = self.texts[i] + ids[:-1]  # the last token is given again with what comes after it
        return turns

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone, in ascending order."""
        self.texts = [self.texts[row] for row in rows]
