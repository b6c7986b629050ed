"""Bytes of one picture to its header, and to pixels. Imports no engine."""
