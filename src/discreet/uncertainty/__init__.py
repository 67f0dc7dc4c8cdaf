"""Standard errors and intervals that count the privacy noise as well as the sampling."""
