"""Mixtures of products: imputation by clusters of rows."""
