"""Agents: what turns a belief state into an action.

``methods`` names the prompting methods of the papers, each a ``chat_agent.ChatAgent`` that a language model
or the offline policy drives. ``memory`` recalls what a user did before, ``plain`` holds the agent to beat.
"""
