"""Instructions without a language model: they obey the profile, name no attribute where they must not, keep
the secret, and are the same at every run."""

import re

import pytest

from pwagents.data.instructions import gives_away
from pwagents.schema import TASK_TYPES
from pwagents.tasks.writers import (
    AMBIGUOUS_LIMIT,
    LIMITS,
    Brief,
    OfflineAmbiguousWriter,
    OfflineInstructionWriter,
    with_instructions,
)


def words(text):
    return re.findall(r"\w+", text.lower())


def briefs_of(benchmark, profile=None):
    return [
        Brief(task, benchmark.products[task.target], profile, benchmark.history(task, "test"))
        for task in benchmark.tasks["test"]
    ]


@pytest.fixture(scope="module", params=["instruction", "ambiguous"])
def written(request, source, facts):
    """Briefs, their instructions, and the most words that these may have."""
    briefs = briefs_of(source, facts())
    if request.param == "instruction":
        return briefs, OfflineInstructionWriter()(briefs), LIMITS
    writer = OfflineAmbiguousWriter(source.products)
    return briefs, writer(briefs), dict.fromkeys(TASK_TYPES, AMBIGUOUS_LIMIT)


def test_instructions_are_short_and_keep_the_secret(written):
    briefs, texts, limits = written
    assert len(texts) == len(briefs) > 50
    for brief, text in zip(briefs, texts, strict=True):
        assert 0 < len(text.split()) <= limits[brief.task.type]
        assert not gives_away(text, brief.task.type, brief.product, brief.task.review)


def test_the_seed_decides(world, facts):
    briefs = briefs_of(world, facts())
    for make in (OfflineInstructionWriter, lambda seed: OfflineAmbiguousWriter(world.products, seed)):
        assert make(0)(briefs) == make(0)(briefs) != make(1)(briefs)
        assert make(0)(briefs[::-1]) == make(0)(briefs)[::-1]


def mean_words(benchmark, profile):
    texts = OfflineInstructionWriter()(briefs_of(benchmark, profile))
    return sum(len(text.split()) for text in texts) / len(texts)


def test_interaction_complexity_makes_it_longer(world, facts):
    low, medium, high = (
        mean_words(world, facts(interaction_complexity=c)) for c in ("Low", "Medium", "High")
    )
    assert low + 2 < medium < high - 2
    assert low == mean_words(world, None)


NEW, SAME = "new to me|try things out", "close to what I know|too unusual"


@pytest.mark.parametrize(
    ("traits", "heard", "unheard"),
    [
        ({"focus_aspect": "Weight, Brand, Store"}, "weight and brand", "and store"),
        ({"tone_and_style": "Enthusiastic"}, "^(Hi|Hello)", "^$"),
        ({"tone_and_style": "Dry, critical"}, "", "^(Hi|Hello)"),
        ({"diversity_preference": "High"}, NEW, SAME),
        ({"diversity_preference": "Low"}, SAME, NEW),
        ({"diversity_preference": "Medium"}, "", f"{NEW}|{SAME}"),
    ],
)
def test_traits_are_heard(world, facts, traits, heard, unheard):
    briefs = [brief for brief in briefs_of(world, facts(**traits)) if brief.task.type != "review"]
    texts = OfflineInstructionWriter()(briefs)
    assert sum(bool(re.search(heard, text)) for text in texts) > 0.6 * len(texts)  # the others have no room
    assert not any(re.search(unheard, text) for text in texts)


def test_strays_from_the_options_do_no_harm(world, facts):
    profile = facts(
        diversity_preference="{}", interaction_complexity="?", focus_aspect=" , {focus} {request}"
    )
    texts = OfflineInstructionWriter()(briefs_of(world, profile))
    assert all(0 < len(text.split()) <= 50 for text in texts)


def test_an_ambiguous_search_names_the_kind_alone(world):
    briefs = [b for b in briefs_of(world) if b.task.type == "search"]
    for brief, text in zip(briefs, OfflineAmbiguousWriter(world.products)(briefs), strict=True):
        title = brief.product.title.split(",")[0].lower()
        # of the title, its last word at most: brand, style and material stay unsaid
        assert set(words(text)) & set(words(title)[:-1]) <= set(words(title)[-1:])


def test_a_rare_kind_is_not_named_but_its_section(world):
    one_of_each = {p.category: p for p in world.products.values()}
    products = {p.parent_asin: p for p in one_of_each.values()}
    task = next(t for t in world.tasks["test"] if t.type == "search")
    for product in products.values():
        (text,) = OfflineAmbiguousWriter(products)([Brief(task, product, None, ())])
        assert "item from the" in text and "section" in text


def test_ambiguous_recommendations_and_reviews_name_nothing(world):
    briefs = [b for b in briefs_of(world) if b.task.type != "search"]
    said = set(OfflineAmbiguousWriter(world.products)(briefs))
    assert len(said) == 8
    assert not any(re.search("star|section|item", text) for text in said)


def test_a_benchmark_of_each_source_can_be_written_anew(source):
    made = with_instructions(source, OfflineAmbiguousWriter(source.products))
    assert made.content_hash != source.content_hash


def test_what_is_not_known_of_a_user_is_not_spoken(world, facts):
    unknown = facts(focus_aspect="Other", interaction_complexity="High", diversity_preference="Medium")
    texts = OfflineInstructionWriter()(briefs_of(world, unknown))
    assert not any("other" in words(text) for text in texts)
