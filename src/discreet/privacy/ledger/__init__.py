"""A privacy budget in a file, and the rules by which it admits charges."""
