"""Experiments with generative convolutional arithmetic circuits and circuits of tables."""

from papers.circuits import digit_pairs, mnist, tables

__all__ = ["digit_pairs", "mnist", "tables"]
