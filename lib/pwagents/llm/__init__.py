"""Language models: what is sent to them, and what they reply."""
