"""Imputers that consist of other imputers of the same table: how these are made, saved and restored."""

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import clone
from torch import Tensor

from halfseen.estimators._base import BaseImputer
from halfseen.estimators.model_file import rebuild


def make_member(owner: BaseImputer, template: BaseImputer, seed: int) -> Any:
    """Returns a copy of an imputer that knows the columns of its owner and is not fitted."""
    member: Any = clone(template)
    member.schema_, member.seed_, member.n_features_in_ = owner.schema_, seed, owner.n_features_in_
    if hasattr(owner, "feature_names_in_"):
        member.feature_names_in_ = owner.feature_names_in_
    return member


def members_state(members: Sequence[BaseImputer]) -> dict[str, Tensor]:
    """Returns the tensors of all members; the number of the member precedes each name."""
    return {
        f"{position}/{name}": tensor
        for position, member in enumerate(members)
        for name, tensor in member._state().items()
    }


def restore_members(
    owner: BaseImputer, manifests: Sequence[Mapping[str, Any]], state: Mapping[str, Tensor]
) -> list[BaseImputer]:
    """Returns the members of which `members_state` and their manifests were saved."""
    members = []
    for position, manifest in enumerate(manifests):
        prefix = f"{position}/"
        own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
        member = rebuild(manifest, own)
        if not isinstance(member, BaseImputer) or member.schema_ != owner.schema_:
            raise ValueError(f"member {position} is not an imputer of this table")
        members.append(member)
    return members
