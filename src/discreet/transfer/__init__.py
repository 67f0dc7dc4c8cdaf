"""Model-agnostic private learning: any model, made private by the agreement of teachers on disjoint data."""
