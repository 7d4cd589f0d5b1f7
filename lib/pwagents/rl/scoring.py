"""What a policy thinks of tokens: log-probabilities and entropies where they are needed, and nowhere else.

Most tokens of an episode are prompt and answers. The output layer, a good part of a small model and many
gigabytes of logits of a large one, sees only the tokens to learn from. The prompt that the episodes of a task
have in common is read once (:mod:`pwagents.lm.packed`).
"""

from functools import wraps
from typing import TYPE_CHECKING, Any

from pwagents.lm.packed import states_before

if TYPE_CHECKING:
    import torch

_CHUNK = 1024  # tokens whose logits are held at once


def add_scoring(model: Any) -> None:
    """Teach ``model(ids, scored=..., temperatures=...)`` to score; without ``scored`` it does what it did.

    The model's own ``forward`` is where this must happen: wrappers for several GPUs and mixed precision call
    nothing else.

    ``ids`` is (episodes, tokens), padded on the right, ``scored`` a boolean of that shape, false for
    each row's first token, ``temperatures`` (episodes,). Returned are, of the scored tokens, row after row:
    log-probabilities (n,), entropies (n,) in nats, and the hidden states that chose them (n, hidden size).
    """
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward = model.forward

    @wraps(type(model).forward)  # generate() reads the signature
    def scoring_forward(input_ids=None, *arguments, scored=None, temperatures=None, **options):
        if scored is None:
            return forward(input_ids, *arguments, **options)
        return _score(model, input_ids, scored, temperatures)

    model.forward = scoring_forward


def _score(model: Any, ids: "torch.Tensor", scored: "torch.Tensor", temperatures: "torch.Tensor"):
    import torch
    from torch.utils.checkpoint import checkpoint

    hidden, targets = states_before(model, ids, scored), ids[scored]
    temperature = temperatures[:, None].expand(scored.shape)[scored]
    parts = [
        checkpoint(_score_tokens, model.lm_head, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(hidden.split(_CHUNK), targets.split(_CHUNK), temperature.split(_CHUNK), strict=True)
    ]
    logprobs, entropies = (torch.cat(column) for column in zip(*parts, strict=True))
    return logprobs, entropies, hidden


def _score_tokens(head, hidden: "torch.Tensor", targets: "torch.Tensor", temperature: "torch.Tensor"):
    logprobs = (head(hidden).float() / temperature[:, None]).log_softmax(-1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], entropies
