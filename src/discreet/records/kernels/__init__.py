"""Compiled passes over rows."""
