"""What notebooks 01 to 03 measure of a benchmark.

Its people and tasks, references, profiles, simulators, sessions, and how easily agents are led
astray.
"""
