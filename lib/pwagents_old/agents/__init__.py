"""Agents: what turns a belief state into an action.

``methods`` names the prompting methods of the papers, each a ``chat_agent.ChatAgent`` that a language model
or the offline policy drives. ``official`` tells a model of a task as the published code does, ``memory``
recalls what a user did before, ``plain`` holds the agent to beat.
"""
