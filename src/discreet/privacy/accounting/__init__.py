"""The price of events: exact profiles, accountants, calibration."""
