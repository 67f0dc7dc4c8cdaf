"""What events cost: exact profiles, accountants, calibration."""
