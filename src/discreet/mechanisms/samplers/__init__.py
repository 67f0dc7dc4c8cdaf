"""Exact samplers from a secret key."""
