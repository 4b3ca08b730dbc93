"""Density models over incomplete data."""
