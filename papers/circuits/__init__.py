"""Experiments with generative convolutional arithmetic circuits and circuits of tables."""

from papers.circuits import digit_pairs, figure3, figure4, mnist, tables

__all__ = ["digit_pairs", "figure3", "figure4", "mnist", "tables"]
