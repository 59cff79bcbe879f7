"""Blocks of converted networks."""
