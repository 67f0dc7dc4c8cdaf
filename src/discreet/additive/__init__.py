"""Private additive models: one shape per column, on bins that the fit itself chooses and pays for."""
