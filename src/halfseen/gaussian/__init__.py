"""The multivariate Gaussian on mixed tables: EM, exact conditionals, posterior draws."""
