"""Instructions written from profiles and products."""
