"""Classification of sequences with missing values."""
