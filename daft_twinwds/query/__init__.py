"""Aligned rows to a Daft DataFrame: schema, pushdowns, source."""
