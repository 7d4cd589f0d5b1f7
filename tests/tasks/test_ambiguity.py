"""How many products fit an instruction: against a slow count, and on cases whose answer is plain."""

from hypothesis import given
from hypothesis import strategies as st

from pwagents.schema import Product
from pwagents.shop.search import analyze, product_text
from pwagents.tasks.ambiguity import WordIndex, content_terms

WORDS = ["lamp", "lamps", "red", "blue", "oak", "chair", "folding", "please", "find", "me", "the", "20"]


def shop(*titles):
    return {
        f"B{i}": Product(parent_asin=f"B{i}", title=title, category="Home") for i, title in enumerate(titles)
    }


def slow_count(products, instruction, target):
    pages = {asin: set(analyze(product_text(product))) for asin, product in products.items()}
    said = set(content_terms(instruction)) & pages[target]
    return sum(said <= page for page in pages.values())


@given(
    titles=st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join), min_size=1, max_size=12
    ),
    instruction=st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    data=st.data(),
)
def test_the_index_counts_as_the_slow_way_does(titles, instruction, data):
    products = shop(*titles)
    target = data.draw(st.sampled_from(sorted(products)))
    index = WordIndex(products)
    fitting = index.fitting(instruction, target)
    assert fitting == slow_count(products, instruction, target)
    assert 1 <= fitting <= len(index)
    assert index.fitting(f"{instruction} lamp", target) <= fitting  # more said, fewer fit
