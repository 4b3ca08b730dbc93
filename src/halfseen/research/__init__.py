"""Tools for research on latent-variable models: likelihood estimates, posteriors and image distances."""
