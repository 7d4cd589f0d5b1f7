"""What products are like: traits read off pages, prices among their like, values found in texts."""

import pytest

from pwagents.profiles.catalogue import BANDS, Catalogue, Trait, section


def texts(catalogue, asin):
    return [trait.text for trait in catalogue.traits(asin)]


@pytest.fixture
def lamps(product_of):
    """A catalogue of ten lamps, white and navy in turn, the dearer the later."""
    return Catalogue({p.parent_asin: p for p in (product_of(n) for n in range(10))})


def test_traits_are_brand_price_band_details_and_words_of_the_title(lamps):
    assert texts(lamps, "B001") == [
        "brand: Lumo",
        "price: budget",
        "color: navy",
        "topic: reading",
        "topic: lamp",
    ]


def test_a_title_without_details_is_read_with_the_values_of_other_pages(lamps, product_of):
    bare = product_of(99, title="Lumo desk lamp in navy", store=None, price=None, details={})
    products = {**lamps.products, "B099": bare}
    assert texts(Catalogue(products), "B099") == ["brand: Lumo", "color: navy", "topic: desk", "topic: lamp"]


def test_details_that_nobody_has_tastes_in_are_passed_over(product_of):
    details = {
        "Date First Available": "May 1, 2020",
        "Batteries required": "No",
        "Material Type": "Oak, Steel",
    }
    catalogue = Catalogue({"B000": product_of(0, details=details, title="Thing")})
    assert "material: oak" in texts(catalogue, "B000") and "material: steel" in texts(catalogue, "B000")
    assert not any("2020" in text or "batter" in text for text in texts(catalogue, "B000"))


def test_price_bands_of_the_embedded_world_are_mostly_its_tiers():
    from pwagents.data.synthetic import WorldConfig, make_world

    world = make_world(WorldConfig(n_users=1, n_products=2000), seed=0)
    catalogue = Catalogue(world.benchmark.products)
    agree = [
        Trait("price", world.truth.items[asin].values["tier"]) in catalogue.traits(asin)
        for asin in world.benchmark.products
    ]
    assert sum(agree) / len(agree) > 0.8
    assert set(BANDS) == {item.values["tier"] for item in world.truth.items.values()}


def test_a_price_is_ranked_among_its_like(lamps):
    assert lamps.price_rank("B000") == pytest.approx(0.05)
    assert lamps.price_rank("B009") == pytest.approx(0.95)


def test_no_price_no_rank(product_of):
    catalogue = Catalogue({"B000": product_of(0, price=None)})
    assert catalogue.price_rank("B000") is None
    assert not any(trait.about == "price" for trait in catalogue.traits("B000"))


def test_share_is_how_common_a_value_is_in_its_category(lamps):
    assert lamps.share(Trait("color", "navy"), "Home and Kitchen") == 0.5
    assert lamps.share(Trait("topic", "lamp"), "Home and Kitchen") == 1.0


def test_a_store_is_found_only_as_it_is_written(lamps):
    assert [trait.text for _, trait in lamps.find("Please Lumo in navy")] == ["brand: Lumo", "color: navy"]
    assert [trait.text for _, trait in lamps.find("lumo")] == []


def test_sections_are_departments_where_pages_name_them(product_of):
    assert section(product_of(0)) == "Home and Kitchen"
    assert section(product_of(0, details={"Department": "Bedroom"})) == "Home and Kitchen > bedroom"


def test_empty_catalogue():
    assert Catalogue({}).find("navy lamp") == []
