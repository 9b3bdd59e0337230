"""Waits until the program imports `torch`, then counts its steps, records its allocations, and writes what it sees into files.

Nothing here may end the program that it watches. What is needed only with `torch` is imported only then: `hooks.py` says when."""
