"""Deep latent-variable models of incomplete data: MVAE, MIWAE, not-MIWAE, MissVAE ... DeMissVAE."""
