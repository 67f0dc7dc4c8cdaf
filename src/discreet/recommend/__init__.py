"""Matrix completion under user-level joint differential privacy.

The global step (`plan`, `charge`, `run`) sees all rows and releases the item side with noise; the local step
(`discreet.recommend.item_models`) sees the release and one user's own row, and can run on that user's device.
"""

from discreet.recommend.completion import PrivateMatrixCompletion

__all__ = ["PrivateMatrixCompletion"]
