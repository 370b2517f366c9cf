"""Compiled graphs: what runs promise."""
