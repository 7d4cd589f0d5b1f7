"""The small base model of the presets without a GPU: its network, what it reads, its pre-training."""
