"""How a notebook is run: its parameters, its journal row, the command that `make` calls."""
