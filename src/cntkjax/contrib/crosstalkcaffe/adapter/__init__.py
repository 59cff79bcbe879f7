"""Readers of other toolkits' networks."""
