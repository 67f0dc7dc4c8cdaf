"""Private summaries of a table."""

from discreet.description.describe import describe
from discreet.description.quantiles import private_domains, private_norm_bound, private_quantiles

__all__ = ["describe", "private_domains", "private_norm_bound", "private_quantiles"]
