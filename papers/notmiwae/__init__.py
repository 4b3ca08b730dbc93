"""Experiments of the not-MIWAE report: imputation of values that are missing not at random."""

from papers.notmiwae import report, tables, toys

__all__ = ["report", "tables", "toys"]
