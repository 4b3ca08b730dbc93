"""Estimators with the scikit-learn interface, for tables with missing values."""
