"""The web environment: web functions, product search, recommender, rewards."""
