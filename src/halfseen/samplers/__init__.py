"""Draws of what is missing, from trained models."""
