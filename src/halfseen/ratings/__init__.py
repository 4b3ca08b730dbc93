"""Ratings and other sparse matrices: AutoRec, CF-NADE, matrix factorisation and AutoImpute."""
