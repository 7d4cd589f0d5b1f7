"""Users who answer when an agent asks.

Each is a :data:`pwagents.shop.environment.UserSimulator`: called with the task, the session so far and what
the agent says, it answers as the user would. ``rules`` needs no language model, ``llm`` plays PersonalWAB's
Figure 15; without a user nobody answers. What no simulated user may give away, ``rules.leaks`` says.
"""
