"""Who plays: a language model, the offline agent, references; and what they can recall."""
