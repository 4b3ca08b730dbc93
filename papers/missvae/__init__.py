"""Experiments of the MissVAE family, and estimates of likelihoods and posteriors that they need."""

from papers.missvae import causes, images, mixtures, tables

__all__ = ["causes", "images", "mixtures", "tables"]
