"""Episodes played and kept, their grades, and what is made of them: statistics, tables, figures."""
