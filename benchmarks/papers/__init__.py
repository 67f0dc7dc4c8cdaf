"""The living benchmark: the papers' tables and figures, run again with this library and its peers.

``python -m benchmarks.papers`` runs named tables and appends one row per run to a results file; with ``report`` it
turns that file into one page. No figure is typed by hand, except those that the papers printed, which stand beside
ours.
"""
