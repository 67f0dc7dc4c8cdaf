"""Minimizers with certificates: each answer is proved to meet a public tolerance."""
