"""The websites: their pages, the server, sessions, and what counts as done."""
