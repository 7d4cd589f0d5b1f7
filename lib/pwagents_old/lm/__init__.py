"""Causal language models, whatever they are for.

The small one made here, examples as tokens, fine-tuning, preference optimization, decoding in batches,
whether a training fits, and starting it on one process or many.
"""
