"""Grade trajectories, run episodes, and turn records into statistics, tables and figures.

``metrics`` grades one trajectory, ``runner`` runs episodes and keeps them as ``records`` in a ``store``,
``statistics`` gives means with intervals and paired tests, ``breakdowns`` results by task, ``paper`` the
numbers printed in the papers and ours below them; ``tables``, ``figures`` and ``viewer`` show it all.
"""
