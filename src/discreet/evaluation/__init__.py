"""Private evaluation of released models on held-out records."""

from discreet.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
