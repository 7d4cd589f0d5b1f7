"""Grade trajectories, run episodes, and turn records into statistics, tables and figures.

``metrics`` grades one trajectory, ``runner`` runs and stores episodes, ``statistics`` gives means with
intervals and paired tests, ``tables`` and ``figures`` write what a notebook shows, ``targets`` holds the
numbers printed in the papers.
"""
