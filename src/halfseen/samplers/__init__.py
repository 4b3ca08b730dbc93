"""Draws of missing values from trained models."""
