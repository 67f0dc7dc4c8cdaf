"""Everything that this package claims, recomputed from a checkout: ``make attest`` and ``make attest-full``."""
