"""Exact samplers driven by a secret key."""
