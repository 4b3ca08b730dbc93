"""Experiments of the MissVAE family, and estimates of likelihoods and posteriors that they need."""

from papers.missvae import images, mixtures, tables

__all__ = ["images", "mixtures", "tables"]
