"""What latent imputers may be asked for."""

from typing import Any, get_args

from halfseen.estimators._parameters import check_training, check_whole
from halfseen.models.latent.tabular import Missingness

MISSINGNESS = get_args(Missingness)
SELF_MASKING = ("self-masking", "self-masking-known", "monotone", "shared-slope", "flexible")
CHOICES: dict[str, tuple[str, ...]] = {
    "posterior": ("gaussian", "mixture", "imputations"),
    "sampling": ("ancestral", "stratified"),
    "bound": ("elbo", "iwelbo", "looser"),
    "gradient": ("full", "stl", "dreg"),
    "numeric": ("student-t", "gaussian", "shared-gaussian"),
    "encoder": ("guess", "zero", "learned", "set"),
    "decoder": ("residual", "linear"),
}


def check_choices(imputer: Any) -> None:
    """Raises a ValueError if a parameter of a latent imputer is not one that it can have."""
    for name, choices in CHOICES.items():
        if getattr(imputer, name) not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {getattr(imputer, name)!r}.")
    if isinstance(imputer.missingness, str):
        if imputer.missingness not in MISSINGNESS:
            raise ValueError(f"missingness must be one of {MISSINGNESS}, got {imputer.missingness!r}.")
    elif not callable(getattr(imputer.missingness, "probability", imputer.missingness)):
        raise ValueError(f"missingness must be a name or a function, got {imputer.missingness!r}.")
    if imputer.posterior == "imputations" and imputer.missingness != "ignorable":
        raise ValueError(
            f"posterior='imputations' needs missingness='ignorable', got {imputer.missingness!r}."
        )
    lowest = {"n_components": 1, "n_starts": 1, "n_draws": 1, "width": 0, "n_blocks": 0}
    lowest |= {"n_imputation_draws": 1, "n_chain_steps": 0}
    for name, bound in lowest.items():
        check_whole(name, getattr(imputer, name), bound)
    for name, bound in {"n_latent": 1, "batch_size": 1, "max_epochs": 0}.items():
        check_whole(name, getattr(imputer, name), bound, auto=True)
    check_training(imputer)
    if imputer.image_shape is not None and imputer.encoder != "guess":
        raise ValueError(
            f"Images have an encoder of their own: encoder must be 'guess', got {imputer.encoder!r}."
        )
    if imputer.n_chain_steps and (imputer.posterior == "mixture" or imputer.image_shape is not None):
        raise ValueError("n_chain_steps must be 0 for images and with posterior='mixture'.")
    if imputer.image_shape is not None and imputer.width == 0:
        raise ValueError("width must be at least 1 for images, got 0.")
