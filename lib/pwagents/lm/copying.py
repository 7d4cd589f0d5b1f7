"""Two layers that copy, put below a small model: an induction circuit (Olsson et al. 2022) from the start.

To go on with a text that has been read before, a model looks for the place where the word that it has just
said stands, and says what follows there. Large language models learn this from billions of words; half a
million parameters do not learn it in minutes. So the weights of two layers begin as such a circuit, and are
trained on like all others. In the first layer head h notes at each place which word stands h places before.
In the second one each head looks for places by what is noted there, and passes on the word that they hold:
the first what came after the word at hand; the second what came two places after it, since a query may leave
a word out; the third what came two places after the word before it, since what stood before a word tells
which of several texts is gone on with.

The layers above them begin by adding nothing: with random weights they would drown what is passed on, and it
would take hundreds of steps to clear that away.
"""

from typing import TYPE_CHECKING, Any

from pwagents.seeds import derive_seed

if TYPE_CHECKING:
    import torch

LAYERS = 2
NEAR = 4.0  # how sharply the first layer looks at one distance
ALIKE = 3.0  # how sharply the second layer looks for the same word
NOTE, COPY = 1.0, 0.5  # sizes of what the layers add, that of an embedding being 1 or so
# Of the 16 pairs of dimensions that positions rotate (in a head of 32), the fast ones tell distances, and the
# slow ones, which a few dozen places hardly turn, tell words.
_FAST = 6
_WEIGHTS_OF_FAST = (3.0, 2.0, 1.0, 1.0, 1.0, 1.0)
# A head of the second layer -> which word it asks for (0: the one at hand, 1: the one before it), and at
# which distance that word is noted at the places that it looks for; distance 3 is left to training.
_LOOKED_FOR = ((0, 1), (0, 2), (1, 2))


def with_copying_layers(model: Any, seed: int) -> Any:
    """Return the small model with the two layers below its own, which begin by adding nothing.

    It has to have as many heads of keys as of queries, three at most, each of at least 2 x 12 dimensions.

    Args:
        seed: of the directions in which words are noted and passed on.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = model.config.to_dict()
    config |= {"num_hidden_layers": config["num_hidden_layers"] + LAYERS, "layer_types": None}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "layers that copy"))
        deeper = Qwen2ForCausalLM(Qwen2Config(**config))
        directions = torch.linalg.qr(torch.randn(model.config.hidden_size, model.config.hidden_size))[0]
    for module in ("embed_tokens", "norm"):
        getattr(deeper.model, module).load_state_dict(getattr(model.model, module).state_dict())
    for ours, theirs in zip(deeper.model.layers[LAYERS:], model.model.layers, strict=True):
        ours.load_state_dict(theirs.state_dict())
    deeper.generation_config = model.generation_config
    with torch.no_grad():
        for layer in deeper.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        first, second = (layer.self_attn for layer in deeper.model.layers[:LAYERS])
        # Queries, keys and values of 0, into which the circuit is written.
        for attention in (first, second):
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
                projection.weight.zero_()
                projection.bias.zero_()
        heads = model.config.num_attention_heads
        size = model.config.hidden_size // heads
        for head in range(heads):
            place = slice(head * size, (head + 1) * size)
            _note(first, place, head + 1, directions)
            _copy(second, place, *_LOOKED_FOR[head], directions)
    return deeper


def _note(attention: Any, place: slice, distance: int, directions: "torch.Tensor") -> None:
    """Let the head at ``place`` note the word that stands ``distance`` places before."""
    import torch

    pairs = (place.stop - place.start) // 2
    slow = _slow(pairs)
    size = torch.zeros(pairs)
    size[:_FAST] = torch.tensor(_WEIGHTS_OF_FAST).sqrt() * NEAR
    angle = distance * 10_000.0 ** (-torch.arange(pairs) / pairs)
    attention.q_proj.bias[place] = torch.cat([size, torch.zeros(pairs)])
    attention.k_proj.bias[place] = torch.cat([size * angle.cos(), size * angle.sin()])
    source, target = (_directions(directions, len(slow), which) for which in (0, distance))
    rows = [place.start + i for i in slow]
    attention.v_proj.weight[rows] = source.T
    attention.o_proj.weight[:, rows] = NOTE * target * source.shape[0] ** -0.5


def _copy(attention: Any, place: slice, back: int, distance: int, directions: "torch.Tensor") -> None:
    """Let the head at ``place`` look where the word ``back`` places back was noted as standing ``distance``
    places before, and pass on what stands there."""
    slow = _slow((place.stop - place.start) // 2)
    rows = [place.start + i for i in slow]
    attention.q_proj.weight[rows] = ALIKE * _directions(directions, len(slow), back).T
    attention.k_proj.weight[rows] = ALIKE * _directions(directions, len(slow), distance).T
    word = directions.roll(back + distance, 0)[:, place]
    attention.v_proj.weight[place] = word.T
    attention.o_proj.weight[:, place] = COPY / (distance - back) * word


def _slow(pairs: int) -> list[int]:
    return [*range(_FAST, pairs), *range(pairs + _FAST, 2 * pairs)]


def _directions(directions: "torch.Tensor", n: int, which: int) -> "torch.Tensor":
    """(hidden, n): the directions that the words themselves are read from (0), or are noted in (1, 2, 3)."""
    return directions[:, which * n : (which + 1) * n]
