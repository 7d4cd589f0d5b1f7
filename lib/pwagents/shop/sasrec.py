"""The shop's recommender: SASRec (Kang & McAuley, ICDM 2018), trained so that it knows no future.

Forward pass and parameter names are those of the PyTorch version that PersonalWAB trained
(github.com/pmixer/SASRec.pytorch, state of 2024), so that its checkpoint fits. It differs from the paper in
two places: the residual goes around attention from the *normalized* input, and padding is not masked as a key
(a zero vector is attended to), so that a short sequence must always be padded to ``MAX_LENGTH``.

Our training departs from the published one: a sequence longer than ``MAX_LENGTH`` is cut into windows instead
of losing its beginning, and an epoch visits each window once instead of drawing users at random.

What one user bought before their test tasks may lie after another user's. So several recommenders are
trained, each on what lies before its date, and a user gets the latest one whose date is not after their first
test task. PersonalWAB's own checkpoint was trained on the benchmark itself (3.2.3): published protocol alone.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from pwagents.code import hash_of
from pwagents.errors import DataError
from pwagents.files import file_hash
from pwagents.portable import one_core
from pwagents.progress import progress
from pwagents.schema import Benchmark
from pwagents.settings import SasRecSettings, plain
from pwagents.shop.search import RESULTS
from pwagents.store import made

CHECKPOINT, ITEM_NUMBERS = "pwab.pth", "1000_ids.json"
PADDING = 0  # item 0 is no item
# As PersonalWAB trained its checkpoint.
HIDDEN, BLOCKS, HEADS = 50, 2, 2  # width and layers of the transformer, and attention heads of a layer
MAX_LENGTH = 30  # most recent items that the model sees
BATCH_SIZE = 128  # windows a step
NEGATIVES = 1  # sampled items a position, for the loss bce


class FeedForward(nn.Module):
    """Two position-wise layers with a residual; 1x1 convolutions only because the checkpoint has them."""

    def __init__(self, hidden: int, dropout: float):
        super().__init__()
        self.conv1 = nn.Conv1d(hidden, hidden, kernel_size=1)
        self.conv2 = nn.Conv1d(hidden, hidden, kernel_size=1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        # As the linear layers that they are, which is faster and needs no transposing.
        inner = self.dropout(F.linear(x, self.conv1.weight.squeeze(-1), self.conv1.bias)).relu()
        return x + self.dropout(F.linear(inner, self.conv2.weight.squeeze(-1), self.conv2.bias))


class SasRec(nn.Module):
    """Self-attention over the items of a sequence; items are numbered 1 to ``n_items``, 0 is padding."""

    def __init__(self, n_items: int, dropout: float):
        super().__init__()
        hidden, blocks = HIDDEN, range(BLOCKS)
        self.item_emb = nn.Embedding(n_items + 1, hidden, padding_idx=PADDING)
        # Positions count from 1 at the left end of a window; padding has none.
        self.pos_emb = nn.Embedding(MAX_LENGTH + 1, hidden, padding_idx=0)
        self.emb_dropout = nn.Dropout(dropout)
        self.attention_layernorms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-8) for _ in blocks)
        self.attention_layers = nn.ModuleList(
            nn.MultiheadAttention(hidden, HEADS, dropout, batch_first=True) for _ in blocks
        )
        self.forward_layernorms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-8) for _ in blocks)
        self.forward_layers = nn.ModuleList(FeedForward(hidden, dropout) for _ in blocks)
        self.last_layernorm = nn.LayerNorm(hidden, eps=1e-8)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_normal_(parameter)
        with torch.no_grad():  # initializing drew numbers for the padding, too
            self.item_emb.weight[PADDING] = 0
            self.pos_emb.weight[0] = 0

    def forward(self, sequences: Tensor) -> Tensor:
        """Predict what comes next at every position: (batch, length) items -> (batch, length, hidden)."""
        length = sequences.shape[1]
        positions = torch.arange(1, length + 1, device=sequences.device) * (sequences != PADDING)
        # Scaled as in the Transformer (Vaswani et al. 2017, 3.4).
        x = self.item_emb(sequences) * self.item_emb.embedding_dim**0.5 + self.pos_emb(positions)
        x = self.emb_dropout(x)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        attentions = zip(self.attention_layernorms, self.attention_layers, strict=True)
        forwards = zip(self.forward_layernorms, self.forward_layers, strict=True)
        for (norm_1, attention), (norm_2, feed_forward) in zip(attentions, forwards, strict=True):
            query = norm_1(x)  # the queries are normalized, keys and values are not, as published
            attended, _ = attention(query, x, x, attn_mask=future, need_weights=False)
            x = feed_forward(norm_2(query + attended))
        return self.last_layernorm(x)


def sasrec_from(weights: Mapping[str, Tensor]) -> SasRec:
    """Make the model of these weights, in evaluation mode.

    Raises:
        RuntimeError, KeyError, TypeError: names or shapes are not those of a SASRec of the published shape.
    """
    with torch.random.fork_rng(devices=[]):  # building the model draws initial weights
        model = SasRec(len(weights["item_emb.weight"]) - 1, dropout=0.0)
    model.load_state_dict(weights)
    return model.eval()


def pad(sequences: Sequence[Sequence[int]], length: int) -> Tensor:
    """Take the last ``length`` items of each sequence, zeros in front: (len(sequences), length)."""
    rows = [[PADDING] * (length - len(s)) + list(s[-length:]) for s in sequences]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), length)


def training_windows(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Cut windows, (n, MAX_LENGTH + 1), zeros in front, so that all items but the first are targets once."""
    ends = [(sequence, end) for sequence in sequences for end in range(len(sequence), 1, -MAX_LENGTH)]
    return pad([sequence[:end] for sequence, end in ends], MAX_LENGTH + 1)


def sample_unowned(windows: Tensor, n: int, n_items: int) -> Tensor:
    """Draw uniform items that are not in the window: (batch, length + 1) -> (batch, length, n).

    Unlike the published code's, draws are repeated ten times at most: somebody may have bought everything.
    """
    batch, width = windows.shape
    # Each row's items get numbers of their own: then one look-up serves all rows.
    row = torch.arange(batch).view(-1, 1, 1) * (n_items + 1)
    owned = (windows.unsqueeze(-1) + row).flatten()
    drawn = torch.randint(1, n_items + 1, (batch, width - 1, n))
    for _ in range(10):
        clash = torch.isin(drawn + row, owned)
        if not clash.any():
            break
        drawn[clash] = torch.randint(1, n_items + 1, (int(clash.sum()),))
    return drawn


def sequence_loss(model: SasRec, windows: Tensor, loss: str) -> Tensor:
    """Compute the mean loss over the windows' real positions: (batch, MAX_LENGTH + 1) -> ()."""
    # Padding comes first, so a position that holds an item is followed by one.
    inputs, targets = windows[:, :-1], windows[:, 1:]
    real = inputs != PADDING
    states, positives = model(inputs)[real], targets[real]  # (positions, hidden), (positions,)
    if loss == "cross_entropy":
        return F.cross_entropy(states @ model.item_emb.weight[1:].T, positives - 1)
    n_items = model.item_emb.num_embeddings - 1
    negatives = sample_unowned(windows, NEGATIVES, n_items)[real]  # (positions, negatives)
    positive_scores = (states * model.item_emb(positives)).sum(-1)
    negative_scores = (model.item_emb(negatives) @ states.unsqueeze(-1)).squeeze(-1)
    return (F.softplus(-positive_scores) + F.softplus(negative_scores).sum(-1)).mean()


def train_sasrec(
    sequences: Sequence[Sequence[int]], n_items: int, config: SasRecSettings, seed: int
) -> SasRec:
    """Train a SASRec to predict the next item of ``sequences`` (oldest first), items 1 to ``n_items``.

    The same arguments give the same weights on the same machine. Torch's random state and number of threads
    are left as they were; both are the whole process's, so train one model at a time.

    Raises:
        DataError: fewer than two items, or no sequence of two.
    """
    if n_items < 2 or not any(len(sequence) > 1 for sequence in sequences):
        found, expected = "nothing to tell apart", "two products, and one sequence of two or more"
        raise DataError("training sequences", "all", "item", found, expected)
    windows = training_windows(sequences)
    with torch.random.fork_rng(devices=[]), one_core():
        torch.manual_seed(seed)
        model = SasRec(n_items, config.dropout).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98))
        for _ in progress(range(config.epochs), desc="SASRec", unit="epoch"):
            for rows in torch.randperm(len(windows)).split(BATCH_SIZE):
                optimizer.zero_grad()
                sequence_loss(model, windows[rows], config.loss).backward()
                optimizer.step()
    return model.eval()


class Recommender:
    """Recommends products to follow a sequence of products; threads may share it.

    Args:
        index: product id -> the model's item number.
        candidates: ids that may be recommended, None for all of ``index``; ids not in ``index`` are ignored.
        name: of the folder with its weights, or a hash of their files, for the keys of episodes.

    Raises:
        DataError: no candidate is in ``index``.
    """

    def __init__(
        self, model: SasRec, index: Mapping[str, int], candidates: Iterable[str] | None = None, name: str = ""
    ):
        self.model, self.index, self.name = model.eval(), dict(index), name
        # In order, so that equal scores are ordered by id.
        self._candidates = sorted(index if candidates is None else index.keys() & set(candidates))
        if not self._candidates:
            expected = "products seen in training"
            raise DataError("recommender", "all", "candidates", "none that it knows", expected)
        with torch.inference_mode():
            self._embeddings = model.item_emb(torch.tensor([index[asin] for asin in self._candidates]))

    @classmethod
    def fit(
        cls, sequences: Mapping[str, Sequence[str]], config: SasRecSettings, seed: int, cache_dir: Path
    ) -> "Recommender":
        """Train on user -> product ids, oldest first; ``cache_dir`` keeps the weights.

        Raises:
            DataError: fewer than two products, or no sequence of two.
        """
        # Items are numbered in the ids' order, rows stand in the users': neither depends on how they came.
        products = sorted({asin for sequence in sequences.values() for asin in sequence})
        index = {asin: i for i, asin in enumerate(products, start=1)}
        rows = [[index[asin] for asin in sequences[user]] for user in sorted(sequences)]

        def make(folder: Path) -> None:
            model = train_sasrec(rows, len(index), config, seed)
            save_file(model.state_dict(), folder / "model.safetensors")

        facts = {"sequences": hash_of(rows), "settings": plain(config), "seed": seed}
        folder = made(cache_dir, "sasrec", facts | {"code": ["shop.sasrec", "portable"]}, make)
        return cls(sasrec_from(load_file(folder / "model.safetensors")), index, name=folder.name)

    def recommend(self, product_sequence: Sequence[str], k: int = RESULTS) -> list[str]:
        """Rank the ``k`` products most likely to follow, best first; ties go to the lower id.

        Of ``product_sequence``, oldest first, the last 30 known ids count; none gives an
        empty list. Its own products may be recommended again, as published: people do buy things twice.
        """
        # An agent may say anything in a list of ids.
        items = [self.index[a] for a in product_sequence if isinstance(a, str) and a in self.index]
        if not items or k < 1:
            return []
        with torch.inference_mode():
            last = self.model(pad([items], MAX_LENGTH))[:, -1]
            (scores,) = (last @ self._embeddings.T).numpy()
        k = min(k, len(scores))
        best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])  # no more than these is sorted
        return [self._candidates[i] for i in best[np.argsort(-scores[best], kind="stable")][:k]]


class NoRecommender:
    """Before anybody has bought anything there is nothing to recommend."""

    def recommend(self, product_sequence: Sequence[str], k: int = RESULTS) -> list[str]:
        return []


@dataclass(frozen=True)
class RecommendersByTime:
    """Recommenders, each trained on purchases strictly before its date (milliseconds, ascending)."""

    dates: Sequence[int]
    recommenders: Sequence[Recommender]

    @classmethod
    def fit(
        cls, benchmark: Benchmark, config: SasRecSettings, seed: int, n_dates: int, cache_dir: Path
    ) -> "RecommendersByTime":
        """Train on :func:`training_sequences`, at ``n_dates`` dates at most that part the users evenly."""
        # Users are parted evenly by the date of their first test task: each date is some user's.
        starts = sorted(benchmark.first_task(user) for user in {t.user_id for t in benchmark.tasks["test"]})
        candidates = sorted({starts[len(starts) * i // n_dates] for i in range(n_dates)})
        sequences = {date: training_sequences(benchmark, date) for date in candidates}

        def can_learn(date: int) -> bool:
            rows = sequences[date].values()
            return any(len(row) > 1 for row in rows) and len({asin for row in rows for asin in row}) > 1

        # If the same purchases lie before two dates, as in the synthetic world, the later one adds nothing.
        dates = [date for date in candidates if can_learn(date)]
        dates = dates[:1] + [b for a, b in pairwise(dates) if sequences[a] != sequences[b]]
        return cls(dates, [Recommender.fit(sequences[date], config, seed, cache_dir) for date in dates])

    def at(self, timestamp: int) -> Recommender | NoRecommender:
        """Return the latest recommender that knows nothing from ``timestamp`` on."""
        # A date equal to the timestamp is early enough: training is on what lies strictly before it.
        i = bisect_right(self.dates, timestamp)
        return self.recommenders[i - 1] if i else NoRecommender()


def training_sequences(benchmark: Benchmark, date: int) -> dict[str, list[str]]:
    """Collect what strangers, and users in their train periods, bought before ``date``, oldest first."""
    periods = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    users = {user: [b.parent_asin for b in own if b.timestamp < date] for user, own in periods.items()}
    return users | purchases_of_strangers(benchmark, date)


def purchases_of_strangers(benchmark: Benchmark, date: int) -> dict[str, list[str]]:
    """Collect what each stranger bought before ``date``, oldest first."""
    population = benchmark.population.items()
    return {stranger: [asin for time, asin in bought if time < date] for stranger, bought in population}


def find_published(data_dir: Path | str) -> tuple[Path, Path] | None:
    """Find checkpoint and item numbers in a folder of downloads or a clone; None where either is missing."""
    folder, clone = Path(data_dir), Path(data_dir, "PersonalWAB/envs/pwab/functions/recommender")
    for checkpoint, numbers in ((folder, folder), (clone / "checkpoint", clone / "data")):
        if (checkpoint / CHECKPOINT).exists() and (numbers / ITEM_NUMBERS).exists():
            return checkpoint / CHECKPOINT, numbers / ITEM_NUMBERS
    return None


def load_published(checkpoint: Path, numbers: Path, products: Collection[str]) -> Recommender:
    """Load the published recommender, restricted to those of its products that are among ``products``.

    An earlier state of the code put the first id three times before fewer than four known ids; the latest, as
    here, does not. Departure: equal scores are ordered by id.

    Raises:
        DataError: a file that is no such checkpoint (no code of it is run), weights of another shape, or item
            numbers that the checkpoint does not have.
    """
    try:
        weights = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model = sasrec_from(weights)
    except Exception as error:  # a broken file makes torch raise nearly anything
        expected = "the weights of PersonalWAB's SASRec, and nothing else"
        raise DataError(checkpoint, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    n_items = model.item_emb.num_embeddings - 1
    try:
        number = Annotated[int, Field(ge=1, le=n_items, strict=True)]
        index = TypeAdapter(dict[str, number]).validate_json(numbers.read_bytes())
    except ValueError as error:
        expected = f"one JSON object {{product id: a number from 1 to {n_items}}}"
        raise DataError(numbers, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    name = " ".join(map(file_hash, (checkpoint, numbers)))
    return Recommender(model, index, candidates=products, name=name)
