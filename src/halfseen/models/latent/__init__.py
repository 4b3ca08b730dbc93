"""Deep latent-variable models of incomplete rows."""
