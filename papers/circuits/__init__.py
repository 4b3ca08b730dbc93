"""Experiments with generative convolutional arithmetic circuits and circuits of tables."""

from papers.circuits import digit_pairs, figure3, mnist, shallow, tables

__all__ = ["digit_pairs", "figure3", "mnist", "shallow", "tables"]
