"""A budget that charges are taken from, in memory or in a file."""
