"""Records of an additive model written out as rows, for comparison."""

import numpy as np

from discreet.additive.records import BinnedRecords, Codes


def binned(made, codes, n_samples=None):
    """Records with these bins, column by column."""
    kept = Codes.of([len(table) for table in made.tables], [codes], stored=False)
    n_rows = len(codes[0])
    return BinnedRecords.of(made, kept, np.zeros(n_rows, dtype=bool), n_samples or n_rows)


def rows_of(made, codes):
    """The vectors of the bins side by side, and the constant; a column whose bin is -1 contributes nothing."""
    tables = [
        np.vstack([table, np.zeros(table.shape[1])])[code]
        for table, code in zip(made.tables, codes, strict=True)
    ]
    constant = [np.full((len(codes[0]), 1), made.constant)] if made.constant > 0 else []
    return np.hstack([*tables, *constant])
