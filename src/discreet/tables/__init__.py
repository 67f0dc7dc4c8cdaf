"""Convert raw tables to bounded rows by public domains. Knows nothing about privacy."""

from discreet.tables.domains import Binned, Boolean, Categorical, Numeric, Text
from discreet.tables.schema import Schema, SchemaError, Target

__all__ = ["Binned", "Boolean", "Categorical", "Numeric", "Schema", "SchemaError", "Target", "Text"]
