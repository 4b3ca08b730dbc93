"""Experiments on the library's own claims: automatic choice, margins, multiple imputation and tables."""

from papers.library import auto, inference, margins, tables

__all__ = ["auto", "inference", "margins", "tables"]
