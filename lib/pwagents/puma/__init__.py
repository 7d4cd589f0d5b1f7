"""PUMA (notebook 04): task-specific memory, labels, fine-tuning in two steps, preference pairs."""
