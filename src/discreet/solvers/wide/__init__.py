"""Solvers for wide sparse rows: texts, clicks, diagnoses."""
