"""Settings of the shop: its search, its recommender, and how much of a product it shows."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pwagents_old.settings import settings


@settings
class SasRecSettings:
    """Shape and training of one SASRec; the defaults are PersonalWAB's."""

    hidden: PositiveInt = 50
    """Width of the transformer."""
    blocks: PositiveInt = 2
    """Layers of the transformer."""
    heads: PositiveInt = 2
    """Attention heads of each layer."""
    max_length: PositiveInt = 30
    """The most recent items that the model sees."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Of the transformer."""
    epochs: PositiveInt = 1000
    """Passes over the training sequences."""
    batch_size: PositiveInt = 128
    """Windows of `max_length` purchases a step."""
    learning_rate: PositiveFloat = 0.001
    """Of Adam, with betas 0.9 and 0.98."""
    loss: Literal["bce", "cross_entropy"] = "bce"
    """bce, as published; cross_entropy over all items."""
    negatives: PositiveInt = 1
    """Sampled items a position, for bce (published: 1)."""


@settings
class ShopSettings:
    """What an agent finds in the shop."""

    search_engine: Literal["bm25", "pyserini"] = "bm25"
    """bm25: Lucene's ranking in Python. pyserini: Lucene itself, which brings its own Java."""
    observation: Literal["full", "compact"] = "compact"
    """How much of a product a search result shows."""
    max_tokens: PositiveInt = 256
    """Products, behaviours and instructions are cut to this many tokens before they are embedded."""
    rec_dates: PositiveInt = 4
    """Recommenders that are trained, each on purchases before another date; fewer where fewer are enough."""
    recommender: SasRecSettings = SasRecSettings()
    """Shape and training of SASRec."""
