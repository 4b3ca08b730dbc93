"""Boosted trees: imputation column by column, and prediction from incomplete rows."""
