"""Closed-form densities."""
