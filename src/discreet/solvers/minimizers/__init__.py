"""Searches for minimizers, certified within a public tolerance."""
