"""What latent imputers may be asked for."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfseen.estimators._parameters import check_training, check_whole
from halfseen.models.latent.tabular import OFFERED
from halfseen.vocabulary import Missingness, check_missingness

SIGNED = (Missingness.LOGISTIC, Missingness.MONOTONE)
SELF_MASKING = (*SIGNED, Missingness.SHARED_SLOPE, Missingness.FLEXIBLE)
CHOICES: dict[str, tuple[str, ...]] = {
    "posterior": ("gaussian", "mixture", "imputations"),
    "sampling": ("ancestral", "stratified"),
    "bound": ("elbo", "iwelbo", "siwelbo-loose"),
    "gradient": ("full", "stl", "dreg"),
    "numeric": ("student-t", "gaussian", "shared-gaussian"),
    "encoder": ("preimputed", "zero", "learned", "set"),
    "decoder": ("residual", "linear"),
}


def check_nothing_to_learn(probability: Callable[[Tensor], Any], row: Tensor) -> None:
    """Raises a ValueError if a known missingness has parameters that training would leave as they are."""
    with torch.enable_grad():
        answer = probability(row.detach())
    if isinstance(answer, Tensor) and answer.requires_grad:
        raise ValueError(
            "missingness is a function with parameters that require gradients, which are not trained. Freeze "
            "them, for instance by module.requires_grad_(False), if they are known; to learn how cells are "
            f"missing choose one of {', '.join(map(repr, map(str, OFFERED)))}."
        )


def check_choices(imputer: Any) -> None:
    """Raises a ValueError if a parameter of a latent imputer is not one that it can have."""
    for name, choices in CHOICES.items():
        if getattr(imputer, name) not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {getattr(imputer, name)!r}.")
    if not callable(getattr(imputer.missingness, "probability", imputer.missingness)):
        check_missingness(imputer.missingness, OFFERED, besides=", a mechanism or a function")
    if imputer.signs is not None and imputer.missingness not in SIGNED:
        raise ValueError(
            f"signs is available for missingness={' and '.join(repr(str(word)) for word in SIGNED)} only, "
            f"got missingness={imputer.missingness!r}."
        )
    if imputer.posterior == "imputations" and imputer.missingness != Missingness.MAR:
        raise ValueError(f"posterior='imputations' needs missingness='mar', got {imputer.missingness!r}.")
    lowest = {"n_components": 1, "n_starts": 1, "n_draws": 1, "width": 0, "n_blocks": 0}
    lowest |= {"n_imputation_draws": 1, "n_chain_steps": 0}
    for name, bound in lowest.items():
        check_whole(name, getattr(imputer, name), bound)
    for name, bound in {"n_latent": 1, "batch_size": 1, "max_epochs": 0}.items():
        check_whole(name, getattr(imputer, name), bound, auto=True)
    check_training(imputer)
    if imputer.image_shape is not None and imputer.encoder != "preimputed":
        raise ValueError(
            f"Images have an encoder of their own: encoder must be 'preimputed', got {imputer.encoder!r}."
        )
    if imputer.n_chain_steps and (imputer.posterior == "mixture" or imputer.image_shape is not None):
        raise ValueError("n_chain_steps must be 0 for images and with posterior='mixture'.")
    if imputer.image_shape is not None and imputer.width == 0:
        raise ValueError("width must be at least 1 for images, got 0.")
