"""Chained equations: a Bayesian regression of each column on all others, for multiple imputation."""
