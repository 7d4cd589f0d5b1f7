"""Scores of episodes: by the truth, by rules that read a transcript, by a language model."""
