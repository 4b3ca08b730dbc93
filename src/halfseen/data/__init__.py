"""Incomplete values, column kinds, frames and scaling."""
