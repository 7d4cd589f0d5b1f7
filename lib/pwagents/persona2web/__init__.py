"""Persona2Web: ambiguous queries that only a user's browsing history can resolve (notebook 09)."""
