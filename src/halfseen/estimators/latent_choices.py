"""Checks of the parameters of latent imputers, and their values for the columns of a table."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfseen.data.features import FeatureMap
from halfseen.data.schema import Schema
from halfseen.distributions.families import FAMILIES_OF_VALUES, KINDS_OF_FAMILY
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.models.latent.architecture import OFFERED
from halfseen.nn.mask_models import KnownMask, MaskModel
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
    "chain_kernel": ("mwg", "pseudo-gibbs", "ac-mwg"),
}
MOST_DRAWS = 100_000
"""Latent draws, and steps of chains, for each row: a guess, a hundred times the default."""
NETWORKS = ("encoder", "decoder")  # which may be factories, too


def check_mechanism(probability: Callable[[Tensor], Any], row: Tensor) -> None:
    """Raises a ValueError if a known mechanism does not take rows, or has parameters that are not trained."""
    shape = tuple(row.shape)
    try:
        with torch.enable_grad():
            answer = probability(row.detach())
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"missingness must map a tensor of rows of shape {shape} to probabilities of shape {shape}, but "
            f"it raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(answer, Tensor) or tuple(answer.shape) != shape:
        found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(
            f"missingness must map a tensor of rows of shape {shape} to a torch tensor of probabilities of "
            f"shape {shape}, got {found}."
        )
    if answer.requires_grad:
        raise ValueError(
            "missingness is a function with parameters that require gradients, which are not trained. Freeze "
            "them, for instance by module.requires_grad_(False), if they are known; to learn how cells are "
            f"missing choose one of {', '.join(map(repr, map(str, OFFERED)))}."
        )


def check_likelihoods(likelihoods: Any, schema: Schema) -> dict[str, str]:
    """Returns likelihoods by column name; raises a ValueError if they do not fit the table.

    Whether a likelihood suits the kind of its column is checked when the model is built.
    """
    if likelihoods is None:
        return {}
    if not isinstance(likelihoods, Mapping):
        raise ValueError(f"likelihoods must be a mapping from columns to families, got {likelihoods!r}.")
    columns = {column.name: column for column in schema}
    for name, family in likelihoods.items():
        if str(name) not in columns:
            raise ValueError(f"likelihoods refers to column {str(name)!r}, which is not in the table.")
        if family not in KINDS_OF_FAMILY:
            raise ValueError(
                f"The likelihood of column {str(name)!r} must be one of {', '.join(KINDS_OF_FAMILY)}, "
                f"got {family!r}."
            )
        if family in FAMILIES_OF_VALUES and columns[str(name)].firm_bounds()[1] < inf:
            raise ValueError(
                f"The likelihood {family!r} of column {str(name)!r} is not bounded above: remove the maximum "
                "of this column from the schema, or choose another likelihood."
            )
    return {str(name): str(family) for name, family in likelihoods.items()}


def check_choices(imputer: Any) -> None:
    """Raises a ValueError if a parameter of a latent imputer has an invalid value."""
    for name, choices in CHOICES.items():
        value = getattr(imputer, name)
        if value not in choices and not (name in NETWORKS and callable(value)):
            besides = " or a function that makes a network" if name in NETWORKS else ""
            raise ValueError(f"{name} must be one of {choices}{besides}, got {value!r}.")
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
    for name in ("n_imputation_draws", "n_chain_steps"):
        if getattr(imputer, name) > MOST_DRAWS:
            raise ValueError(f"{name} must be at most {MOST_DRAWS:,}, got {getattr(imputer, name)!r}.")
    for name, bound in {"n_latent": 1, "batch_size": 1, "max_epochs": 0}.items():
        check_whole(name, getattr(imputer, name), bound, auto=True)
    check_training(imputer)
    if imputer.image_shape is not None and imputer.encoder != "preimputed":
        raise ValueError(
            f"Images have an encoder of their own: encoder must be 'preimputed', got {imputer.encoder!r}."
        )
    if imputer.n_chain_steps and (imputer.posterior == "mixture" or imputer.image_shape is not None):
        raise ValueError("n_chain_steps must be 0 for images and with posterior='mixture'.")
    if imputer.image_shape is not None and callable(imputer.decoder):
        raise ValueError("Images have convolutional networks: decoder must be 'residual' or 'linear'.")
    if imputer.image_shape is not None and imputer.likelihoods:
        raise ValueError("All pixels of images have one likelihood: likelihoods must be None.")
    if imputer.chain_kernel == "ac-mwg" and imputer.missingness != Missingness.MAR:
        raise ValueError(f"chain_kernel='ac-mwg' needs missingness='mar', got {imputer.missingness!r}.")
    if imputer.image_shape is not None and imputer.width == 0:
        raise ValueError("width must be at least 1 for images, got 0.")


def modelled_signs(
    signs: Any, missingness: Any, schema: Schema, is_image: bool = False
) -> tuple[int, ...] | None:
    """Returns the sign of each modelled column, from one for all, a sequence or a mapping by name."""
    if missingness not in SIGNED or (signs is None and missingness == Missingness.LOGISTIC):
        return None
    every = list(schema)
    if isinstance(signs, Mapping):
        unknown = set(map(str, signs)) - {column.name for column in every}
        if unknown:
            raise ValueError(f"signs refers to column {sorted(unknown)[0]!r}, which is not in the table.")
        given = [signs.get(column.name, 1) for column in every]
    else:
        value: Any = 1 if signs is None else signs
        given = [value] * len(every) if np.ndim(value) == 0 else list(value)
    if len(given) != len(every) or not all(sign in (-1, 1) for sign in given):
        raise ValueError(f"signs must be +1 or -1, one for all or one for each column, got {signs!r}.")
    if is_image and len(set(given)) > 1:
        raise ValueError("signs must be the same for all pixels of an image.")
    return tuple(int(sign) for sign, column in zip(given, every, strict=True) if column.modelled)


def known_mask(missingness: Any, schema: Schema, features: FeatureMap) -> MaskModel:
    """Returns the model of a known mechanism, a function or a fitted mechanism, in the units of the table."""
    if features.blocks or not all(column.modelled for column in schema):
        raise ValueError(
            "A known mechanism (missingness) needs a table of numeric columns, none of them constant."
        )
    if any(column.levels not in (None, (0.0, 1.0)) for column in schema):
        raise ValueError("A known mechanism (missingness) for binary pixels needs the values 0 and 1.")
    probability = getattr(missingness, "probability", missingness)
    check_mechanism(probability, features.numbers(torch.zeros(1, features.n_features).double()))

    def missing(x: Tensor) -> Tensor:
        answer: Tensor = probability(features.numbers(x.double()))
        return answer.to(x.dtype)

    return KnownMask(missing, features.n_features)
