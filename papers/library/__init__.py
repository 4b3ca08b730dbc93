"""Experiments on the library's own claims: automatic choice, margins, pooling and tables."""

from papers.library import auto, margins, pooling, tables

__all__ = ["auto", "margins", "pooling", "tables"]
