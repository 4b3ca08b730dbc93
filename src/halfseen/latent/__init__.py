"""Deep latent-variable models of incomplete data: MVAE, MIWAE, not-MIWAE, MissVAE ... DeMissVAE."""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.latent.presets import (
        DeMissVAEImputer,
        LatentImputer,
        MissIWAEImputer,
        MissSIWAEImputer,
        MissSVAEImputer,
        MissVAEImputer,
        MIWAEImputer,
        MVAEImputer,
        NotMIWAEImputer,
    )

__all__ = [
    "DeMissVAEImputer",
    "LatentImputer",
    "MIWAEImputer",
    "MVAEImputer",
    "MissIWAEImputer",
    "MissSIWAEImputer",
    "MissSVAEImputer",
    "MissVAEImputer",
    "NotMIWAEImputer",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"presets": __all__})
