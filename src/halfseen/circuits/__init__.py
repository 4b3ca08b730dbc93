"""Probabilistic circuits: exact marginals of tables and images, for imputation and classification."""
