"""Watches a training of PyTorch from inside its process. It uses nothing else of the package: ``vramlab watch`` starts it in any Python."""
