"""Slow and obvious twins of what the library computes."""
