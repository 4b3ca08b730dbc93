"""What latent imputers may be asked for."""

from typing import Any, get_args

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
        if not getattr(imputer, name) >= bound:
            raise ValueError(f"{name} must be at least {bound}, got {getattr(imputer, name)!r}.")
    for name in ("n_latent", "batch_size", "max_epochs"):
        value = getattr(imputer, name)
        if value != "auto" and (isinstance(value, str) or not value >= (name != "max_epochs")):
            raise ValueError(f"{name} must be 'auto' or a positive number, got {value!r}.")
    if imputer.image_shape is not None and imputer.encoder != "guess":
        raise ValueError(
            f"Images have an encoder of their own: encoder must be 'guess', got {imputer.encoder!r}."
        )
    if imputer.n_chain_steps and (imputer.posterior == "mixture" or imputer.image_shape is not None):
        raise ValueError("n_chain_steps must be 0 for images and with posterior='mixture'.")
    if imputer.image_shape is not None and imputer.width == 0:
        raise ValueError("width must be at least 1 for images, got 0.")
    if not 0 <= imputer.validation_fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1), got {imputer.validation_fraction!r}.")
