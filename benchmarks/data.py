"""Real data sets for benchmarks, found through the environment variable DISCREET_DATA, never copied here."""

from benchmarks.papers.datasets import MULTICLASS, TEXT, VARIABLE, MissingData, Split, load, splits

__all__ = ["MULTICLASS", "TEXT", "VARIABLE", "MissingData", "Split", "load", "splits"]
