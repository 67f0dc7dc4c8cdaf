"""How results are shown: console text, charts. Knows nothing of privacy."""
