"""Computes small tensors of a card that is not there. `start.py` begins."""
