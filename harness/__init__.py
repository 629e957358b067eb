"""Measures data loaders, each through its adapter (loaders/protocol.py)."""
