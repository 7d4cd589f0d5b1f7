"""Language models: one protocol, its providers, the response store, failures, budgets and prices."""
