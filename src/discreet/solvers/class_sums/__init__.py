"""Solvers that release noisy sums of each class: discriminants of dense rows, refocused sums of text rows."""
