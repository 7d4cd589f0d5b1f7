"""The shop: product search, a recommender, and the environment that agents act in."""
