"""Bytes to aligned rows: storage, tars, layout, alignment. Imports no engine."""
