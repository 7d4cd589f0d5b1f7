"""Profiles of users: global and micro, their retrieval, their update in a conversation, their evaluation."""
