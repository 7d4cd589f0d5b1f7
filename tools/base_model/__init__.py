"""The factory of the small base models: their network, what they read, their pre-training.

    PYTHONPATH=tools .venv/bin/python -m base_model     # makes lib/pwagents/base_models again, in ten minutes

Trainings do not come here: the models are committed. On one make of CPU they come out the same to the last
byte.
"""

# Before numpy and torch, since it sets how they compute.
import pwagents  # noqa: F401
