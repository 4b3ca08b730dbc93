"""Experiments of the MissVAE family, and estimates of likelihoods and posteriors that they need."""

from papers.missvae import causes, images, imputations, latent_sizes, mixtures, tables

__all__ = ["causes", "images", "imputations", "latent_sizes", "mixtures", "tables"]
