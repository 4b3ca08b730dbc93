"""Creating, saving and restoring the members of estimators that consist of other estimators."""

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import clone
from torch import Tensor

from halfseen.estimators._base import BaseImputer
from halfseen.estimators.model_file import Saveable, rebuild


def make_member(owner: BaseImputer, template: BaseImputer, seed: int) -> Any:
    """Returns an unfitted copy of an imputer with the schema of the imputer that contains it."""
    member: Any = clone(template)
    member.schema_, member.seed_, member.n_features_in_ = owner.schema_, seed, owner.n_features_in_
    if hasattr(owner, "feature_names_in_"):
        member.feature_names_in_ = owner.feature_names_in_
    return member


def members_state(members: Sequence[Saveable]) -> dict[str, Tensor]:
    """Returns the tensors of all members; each name is prefixed with the number of the member."""
    return {
        f"{position}/{name}": tensor
        for position, member in enumerate(members)
        for name, tensor in member._state().items()
    }


def rebuild_members(manifests: Sequence[Mapping[str, Any]], state: Mapping[str, Tensor]) -> list[Any]:
    """Returns the members whose tensors (see `members_state`) and manifests were saved."""
    members = []
    for position, manifest in enumerate(manifests):
        prefix = f"{position}/"
        own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
        members.append(rebuild(manifest, own))
    return members


def restore_members(
    owner: BaseImputer, manifests: Sequence[Mapping[str, Any]], state: Mapping[str, Tensor]
) -> list[BaseImputer]:
    """Returns the members of an imputer, which are imputers of the same table."""
    members = rebuild_members(manifests, state)
    for position, member in enumerate(members):
        if not isinstance(member, BaseImputer) or member.schema_ != owner.schema_:
            raise ValueError(f"member {position} is not an imputer of this table")
    return members
