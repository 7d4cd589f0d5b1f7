"""What a policy thinks of the sampled tokens, and the clipped loss that GRPO and PPO share.

Most tokens of an episode are prompt and answers. The output layer, a good part of a small model and many
gigabytes of logits of a large one, sees only the tokens to learn from. The prompt that the episodes of a task
have in common is read once (:mod:`pwagents.lm.packed`).
"""

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.lm.packed import states_before

if TYPE_CHECKING:
    import torch

EPSILON = 0.2  # how far the ratio of new to old probability may leave 1 (Orion, 5.1)
_CHUNK = 1024  # tokens whose logits are held at once


class TokenLosses(NamedTuple):
    """Of each token, (tokens,); all but ``loss`` are for the log and have no gradient.

    Attributes:
        loss: to be minimized.
        clip_fraction: 1 where the limit is the smaller goal, so that the token no longer moves the policy.
        approx_kl: how far the policy is from the one that played, as r - 1 - log r of the ratio r.
        entropy: of the policy, in nats.
    """

    loss: "torch.Tensor"
    clip_fraction: "torch.Tensor"
    approx_kl: "torch.Tensor"
    entropy: "torch.Tensor"


def token_losses(
    logprobs: "torch.Tensor",
    entropies: "torch.Tensor",
    old: "torch.Tensor",
    advantages: "torch.Tensor",
) -> TokenLosses:
    """Return the clipped surrogate (Schulman et al. 2017).

    Args:
        logprobs, entropies, old, advantages: (tokens,); ``old`` of the policy that played.
    """
    import torch

    # The smaller of both: a token gains nothing by moving farther than epsilon in the direction that its
    # advantage says, but what moved the wrong way is brought back from anywhere.
    ratio = (logprobs - old).exp()
    limited = ratio.clamp(1 - EPSILON, 1 + EPSILON)
    goal, limit = ratio * advantages, limited * advantages
    loss = -torch.min(goal, limit)
    moved = ratio - 1 - (logprobs - old)
    return TokenLosses(loss, (limit < goal).float(), moved.detach(), entropies.detach())


def add_scoring(model: Any) -> Any:
    """Teach ``model(ids, scored=..., temperatures=...)`` to score; without ``scored`` it does what it did.

    The model's own ``forward`` is where this must happen: wrappers for several GPUs and mixed precision call
    nothing else.

    ``ids`` is (episodes, tokens), padded on the right, ``scored`` a boolean of that shape, false for
    each row's first token, ``temperatures`` (episodes,). Returned are, of the scored tokens, row after row:
    log-probabilities (n,), entropies (n,) in nats, and the hidden states that chose them (n, hidden size).
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward = base.forward

    @wraps(type(base).forward)  # generate() reads the signature
    def scoring_forward(input_ids=None, *arguments, scored=None, temperatures=None, **options):
        import torch
        from torch.utils.checkpoint import checkpoint

        if scored is None:
            return forward(input_ids, *arguments, **options)
        hidden, targets = states_before(base, input_ids, scored), input_ids[scored]
        temperature = temperatures[:, None].expand(scored.shape)[scored]
        # Logits are made again in the backward pass: those of all tokens at once are too many to hold.
        parts = [
            checkpoint(_score_tokens, base.lm_head, *part, use_reentrant=False, preserve_rng_state=False)
            for part in zip(
                hidden.split(_CHUNK), targets.split(_CHUNK), temperature.split(_CHUNK), strict=True
            )
        ]
        logprobs, entropies = (torch.cat(column) for column in zip(*parts, strict=True))
        return logprobs, entropies, hidden

    base.forward = scoring_forward
    return model


def _score_tokens(head, hidden: "torch.Tensor", targets: "torch.Tensor", temperature: "torch.Tensor"):
    logprobs = (head(hidden).float() / temperature[:, None]).log_softmax(-1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], entropies
