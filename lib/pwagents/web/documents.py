"""What the search engines have in common: the text of a product, a name for what is indexed, and a hit."""

import hashlib
from collections.abc import Mapping

from pwagents.schema import Product

Hit = tuple[str, float]  # id of a document, and its score


def product_text(product: Product) -> str:
    """The searchable text of a product, in the order of PersonalWAB's index.

    Title, parent asin, average rating, rating number, price, store, features, description, details
    ("name: value") and category, separated by spaces; what is missing is left out. There are no labels
    ("Title:"): a word that every document holds tells none apart and only lengthens all of them.
    """
    fields = [
        product.title,
        product.parent_asin,
        product.average_rating,
        product.rating_number,
        product.price,
        product.store,
        *product.features,
        *product.description,
        *(f"{name}: {value}" for name, value in product.details.items()),
        product.category,
    ]
    return " ".join(str(field) for field in fields if field is not None)


def content_key(documents: Mapping[str, str]) -> str:
    """SHA-256 (first 16 hex digits) of ids and texts, whatever their order."""
    digest = hashlib.sha256()
    for docid in sorted(documents):
        digest.update(
            f"{len(docid)} {len(documents[docid])} {docid}{documents[docid]}".encode(errors="replace")
        )
    return digest.hexdigest()[:16]
