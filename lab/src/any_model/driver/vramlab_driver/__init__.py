"""Trains any network that a Python can build, without its weights."""
