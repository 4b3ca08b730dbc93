"""What all estimators share: tables, imputers, predictors, model files and the catalogue of methods."""
