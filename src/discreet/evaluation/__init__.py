"""Private evaluation of released models on held-out records."""
