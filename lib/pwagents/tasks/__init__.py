"""Instructions made from users, products and profiles."""
