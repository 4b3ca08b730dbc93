"""Experiments of the not-MIWAE report: imputation of values that are missing not at random."""

from papers.notmiwae import tables, toys

__all__ = ["tables", "toys"]
