"""Texts of different lengths read in one line: no token is padding, and what several begin with is read once.

In a batch as it is usually read, each text is as long as the longest, and the episodes of one task repeat its
prompt. On a CPU that is half of all arithmetic. Only attention has to know where a text begins; all other
layers look at single tokens.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

ATTENTION = "packed"  # its name in transformers


class _Span(NamedTuple):
    """A part of the line: its tokens see what stands in it before them, and all of its beginning.

    Args:
        length: in tokens.
        beginning: the number of the span that its text begins with, read once for several texts; None where
            the text begins here.
        sees: (own tokens, beginning and own tokens), true where one sees the other; None without a beginning.
    """

    length: int
    beginning: int | None
    sees: "torch.Tensor | None"


def states_before(model: Any, ids: "torch.Tensor", chosen: "torch.Tensor") -> "torch.Tensor":
    """Compute the last hidden states that foretell the chosen tokens, and no others.

    A text is read up to its last chosen token. Texts that are the same up to the first chosen token of each
    share what was read up to there; gradients flow back through it from all of them.

    Args:
        model: a causal language model of transformers, every layer of which attends to all that came before;
            an adapter may be on it.
        ids: (texts, tokens), padded on the right.
        chosen: of that shape, boolean, one token at least; false for each text's first token, which nothing
            foretells.

    Returns:
        (chosen tokens, hidden size), text after text.

    Raises:
        ValueError: a layer of the model attends to a window only.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    if model.config._attn_implementation != ATTENTION:
        AttentionInterface.register(ATTENTION, _attend)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        model.config._attn_implementation = ATTENTION

    texts: dict[bytes, list[tuple[int, int]]] = {}  # beginning -> rows that have it, and how long they are
    tokens, marks = ids.cpu().numpy(), chosen.cpu().numpy()
    for row in marks.any(1).nonzero()[0].tolist():
        first, last = marks[row].nonzero()[0][[0, -1]].tolist()
        texts.setdefault(tokens[row, :first].tobytes(), []).append((row, last))
    # What stands in the line, span by span, and where each token of each text stands (of tokens that are not
    # read: nowhere in particular).
    line, positions, spans, end = [], [], [], 0
    places = torch.zeros_like(ids)
    for beginning, rows in texts.items():
        parts: list[tuple] = [([row], 0, length, None) for row, length in rows]
        if len(rows) > 1:  # what they have in common, then what each has left
            shared, number = len(beginning) // tokens.itemsize, len(spans)
            parts = [([row], shared, length, number) for row, length in rows if length > shared]
            parts.insert(0, ([row for row, _ in rows], 0, shared, None))
        for own, start, stop, number in parts:
            place = torch.arange(start, stop, device=ids.device)
            places[own, start:stop] = place - start + end
            end += stop - start
            sees = None
            if number is not None:
                sees = torch.ones(stop - start, stop, dtype=torch.bool, device=ids.device).tril(start)
            line.append(ids[own[0], start:stop])
            positions.append(place)
            spans.append(_Span(stop - start, number, sees))
    hidden = model.base_model(
        input_ids=torch.cat(line)[None],
        position_ids=torch.cat(positions)[None],
        attention_mask=ids.new_empty(1, 1, 1, 1),  # of four dimensions: transformers makes no other
        use_cache=False,
        spans=spans,
    ).last_hidden_state[0]
    return hidden[places[:, :-1][chosen[:, 1:]]]


def _attend(module, query, key, value, attention_mask, spans=None, scaling=None, dropout=0.0, **options):
    """torch's attention of (1, heads, tokens, width), span by span; without spans, as "sdpa" does it.

    Args:
        options: of the model; ``sliding_window`` where a layer sees no more than so many tokens.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if spans is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **options
        )
    if options.get("sliding_window"):
        raise ValueError("a layer of this model sees a window only; expected full attention")
    lengths, heads = [span.length for span in spans], query.shape[1] // key.shape[1]
    queries, keys, values = (part.split(lengths, dim=2) for part in (query, key, value))
    results = []
    for i, span in enumerate(spans):
        read = [i] if span.beginning is None else [span.beginning, i]
        pair = (torch.cat([part[j] for j in read], dim=2) for part in (keys, values))
        # Key heads that several query heads share are repeated: torch's ``enable_gqa``, with a mask, takes a
        # GPU to the kernel that writes all scores down.
        pair = (part.repeat_interleave(heads, dim=1) if heads > 1 else part for part in pair)
        limits = {"attn_mask": span.sees, "is_causal": span.sees is None}
        results.append(
            scaled_dot_product_attention(queries[i], *pair, **limits, dropout_p=dropout, scale=scaling)
        )
    return torch.cat(results, dim=2).transpose(1, 2), None
