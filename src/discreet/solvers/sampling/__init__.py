"""Solvers that sample from a Gibbs distribution."""
