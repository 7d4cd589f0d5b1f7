"""SASRec (Kang & McAuley, ICDM 2018): the model, its two losses and its training.

Forward pass and parameter names are those of the PyTorch version that PersonalWAB trained
(github.com/pmixer/SASRec.pytorch, state of 2024), so that its checkpoint fits. It differs from the paper in
two places: the residual goes around attention from the *normalised* input, and padding is not masked as a key
(a zero vector is attended to), so that a short sequence must always be padded to ``max_length``.

Our training departs from the published one: a sequence longer than ``max_length`` is cut into windows instead
of losing its beginning, and an epoch visits each window once instead of drawing users at random.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pwagents.errors import DataError
from pwagents.progress import progress
from pwagents.portable import one_core
from pwagents_old.web.settings import SasRecSettings

PADDING = 0  # item 0 is no item


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

    def __init__(self, n_items: int, config: SasRecSettings):
        super().__init__()
        hidden, blocks = config.hidden, range(config.blocks)
        self.max_length = config.max_length
        self.item_emb = nn.Embedding(n_items + 1, hidden, padding_idx=PADDING)
        # Positions count from 1 at the left end of a window; padding has none.
        self.pos_emb = nn.Embedding(config.max_length + 1, hidden, padding_idx=0)
        self.emb_dropout = nn.Dropout(config.dropout)
        self.attention_layernorms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-8) for _ in blocks)
        self.attention_layers = nn.ModuleList(
            nn.MultiheadAttention(hidden, config.heads, config.dropout, batch_first=True) for _ in blocks
        )
        self.forward_layernorms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-8) for _ in blocks)
        self.forward_layers = nn.ModuleList(FeedForward(hidden, config.dropout) for _ in blocks)
        self.last_layernorm = nn.LayerNorm(hidden, eps=1e-8)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_normal_(parameter)
        with torch.no_grad():  # initialising drew numbers for the padding, too
            self.item_emb.weight[PADDING] = 0
            self.pos_emb.weight[0] = 0

    def forward(self, sequences: Tensor) -> Tensor:
        """Tell what comes next at every position: (batch, length) items -> (batch, length, hidden)."""
        length = sequences.shape[1]
        positions = torch.arange(1, length + 1, device=sequences.device) * (sequences != PADDING)
        # Scaled as in the Transformer (Vaswani et al. 2017, 3.4).
        x = self.item_emb(sequences) * self.item_emb.embedding_dim**0.5 + self.pos_emb(positions)
        x = self.emb_dropout(x)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        attentions = zip(self.attention_layernorms, self.attention_layers, strict=True)
        forwards = zip(self.forward_layernorms, self.forward_layers, strict=True)
        for (norm_1, attention), (norm_2, feed_forward) in zip(attentions, forwards, strict=True):
            query = norm_1(x)  # the queries are normalised, keys and values are not, as published
            attended, _ = attention(query, x, x, attn_mask=future, need_weights=False)
            x = feed_forward(norm_2(query + attended))
        return self.last_layernorm(x)


def sasrec_from(weights: Mapping[str, Tensor], config: SasRecSettings) -> SasRec:
    """Make the model of these weights, in evaluation mode.

    Raises:
        RuntimeError, KeyError, TypeError: names or shapes are not those of ``config``.
    """
    with torch.random.fork_rng(devices=[]):  # building the model draws initial weights
        model = SasRec(len(weights["item_emb.weight"]) - 1, config)
    model.load_state_dict(weights)
    return model.eval()


def pad(sequences: Sequence[Sequence[int]], length: int) -> Tensor:
    """Take the last ``length`` items of each sequence, zeros in front: (len(sequences), length)."""
    rows = [[PADDING] * (length - len(s)) + list(s[-length:]) for s in sequences]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), length)


def training_windows(sequences: Sequence[Sequence[int]], max_length: int) -> Tensor:
    """Cut windows, (n, max_length + 1), zeros in front, so that all items but the first are targets once."""
    ends = [(sequence, end) for sequence in sequences for end in range(len(sequence), 1, -max_length)]
    return pad([sequence[:end] for sequence, end in ends], max_length + 1)


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


def sequence_loss(model: SasRec, windows: Tensor, config: SasRecSettings) -> Tensor:
    """Compute the mean loss over the windows' real positions: (batch, max_length + 1) -> ()."""
    # Padding comes first, so a position that holds an item is followed by one.
    inputs, targets = windows[:, :-1], windows[:, 1:]
    real = inputs != PADDING
    states, positives = model(inputs)[real], targets[real]  # (positions, hidden), (positions,)
    if config.loss == "cross_entropy":
        return F.cross_entropy(states @ model.item_emb.weight[1:].T, positives - 1)
    n_items = model.item_emb.num_embeddings - 1
    negatives = sample_unowned(windows, config.negatives, n_items)[real]  # (positions, negatives)
    positive_scores = (states * model.item_emb(positives)).sum(-1)
    negative_scores = (model.item_emb(negatives) @ states.unsqueeze(-1)).squeeze(-1)
    return (F.softplus(-positive_scores) + F.softplus(negative_scores).sum(-1)).mean()


def train_sasrec(
    sequences: Sequence[Sequence[int]], n_items: int, config: SasRecSettings, seed: int
) -> SasRec:
    """Train a SASRec to foretell the next item of ``sequences`` (oldest first), items 1 to ``n_items``.

    The same arguments give the same weights on the same machine. Torch's random state and number of threads
    are left as they were; both are the whole process's, so train one model at a time.

    Raises:
        DataError: fewer than two items, or no sequence of two.
    """
    if n_items < 2 or not any(len(sequence) > 1 for sequence in sequences):
        found, expected = "nothing to tell apart", "two products, and one sequence of two or more"
        raise DataError("training sequences", "all", "item", found, expected)
    windows = training_windows(sequences, config.max_length)
    with torch.random.fork_rng(devices=[]), one_core():
        torch.manual_seed(seed)
        model = SasRec(n_items, config).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98))
        for _ in progress(range(config.epochs), desc="SASRec", unit="epoch"):
            for rows in torch.randperm(len(windows)).split(config.batch_size):
                optimizer.zero_grad()
                sequence_loss(model, windows[rows], config).backward()
                optimizer.step()
    return model.eval()
