"""What products are like: traits read off pages, prices among their like, values found in texts."""

import pytest

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.profiles.catalogue import BANDS, Catalogue, Trait, section

from .conftest import lamp

LAMPS = {f"B{n:03}": lamp(n) for n in range(10)}  # white and navy in turn, the dearer the later


def traits(asin, *more):
    catalogue = Catalogue(LAMPS | {p.parent_asin: p for p in more})
    return [trait.text for trait in catalogue.traits(asin)]


def test_traits_are_brand_price_band_details_and_words_of_the_title():
    words = ["topic: reading", "topic: lamp"]
    assert traits("B001") == ["brand: Lumo", "price: budget", "color: navy", *words]
    # Without details, a title is read with the values of other pages.
    bare = lamp(99, title="Lumo desk lamp in navy", store=None, price=None, details={})
    assert traits("B099", bare) == ["brand: Lumo", "color: navy", "topic: desk", "topic: lamp"]


def test_details_that_nobody_has_tastes_in_are_passed_over():
    details = {
        "Date First Available": "May 1, 2020",
        "Batteries required": "No",
        "Material Type": "Oak, Steel",
    }
    texts = traits("B099", lamp(99, details=details, title="Thing"))
    assert "material: oak" in texts and "material: steel" in texts
    assert not any("2020" in text or "batter" in text for text in texts)


def test_prices_are_ranked_among_their_like():
    catalogue = Catalogue(LAMPS | {"B099": lamp(99, price=None)})
    assert catalogue.price_rank("B000") == pytest.approx(0.05)
    assert catalogue.price_rank("B009") == pytest.approx(0.95)
    assert catalogue.price_rank("B099") is None
    assert not any(trait.about == "price" for trait in catalogue.traits("B099"))


def test_price_bands_of_the_embedded_world_are_mostly_its_tiers():
    world = make_world(WorldConfig(n_users=1, n_products=2000), seed=0)
    catalogue, tiers = Catalogue(world.benchmark.products), world.truth.items
    agree = [Trait("price", item.values["tier"]) in catalogue.traits(asin) for asin, item in tiers.items()]
    assert sum(agree) / len(agree) > 0.8
    assert set(BANDS) == {item.values["tier"] for item in tiers.values()}


def test_values_are_found_in_texts_a_store_only_as_it_is_written():
    catalogue = Catalogue(LAMPS)
    assert [t.text for _, t in catalogue.find("Please Lumo in navy")] == ["brand: Lumo", "color: navy"]
    assert catalogue.find("lumo") == Catalogue({}).find("navy lamp") == []


def test_sections_are_departments_where_pages_name_them():
    assert section(lamp(0)) == "Home and Kitchen"
    assert section(lamp(0, details={"Department": "Bedroom"})) == "Home and Kitchen > bedroom"
