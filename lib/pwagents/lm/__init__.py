"""Causal language models: examples as tokens, trainings by TRL, decoding in batches, memory on a GPU."""
