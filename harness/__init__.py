"""Measures loaders, and knows none of them by name."""
