"""What shows results: metrics, statistics, tables and figures.

No stored result depends on it but for the metrics.
"""
