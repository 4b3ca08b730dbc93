"""Creating, saving and restoring the members of estimators that consist of other estimators."""

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import clone
from torch import Tensor

from halfseen.base.imputer import BaseImputer
from halfseen.base.model_file import Saveable, rebuild
from halfseen.data.codes import code_settings
from halfseen.data.columns import Column


def make_member(owner: BaseImputer, template: BaseImputer, seed: int) -> Any:
    """Returns an unfitted copy of an imputer with the schema of the imputer that contains it."""
    member: Any = clone(template)
    member.schema_, member.seed_, member.n_features_in_ = owner.schema_, seed, owner.n_features_in_
    if hasattr(owner, "feature_names_in_"):
        member.feature_names_in_ = owner.feature_names_in_
    return member


class WithMembers(Saveable):
    """Saves an estimator that consists of fitted estimators, its members, in one file.

    The description of the file contains those of the members as ``"members"``, and the names of their tensors
    begin with the position of the member. A subclass implements `_set_members`. Its members are ``members_``
    unless it overrides `_members`.
    """

    members_: list[Any]

    @property
    def _members(self) -> Sequence[Saveable]:
        return self.members_

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        """Sets the attributes that hold the members of a loaded file, or raises a ValueError.

        Parameters
        ----------
        members : list of estimators
            The members, in the order of `_members`.
        description : mapping
            The description of the file, with what `_entries` of the subclass contributed.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `_set_members`.")

    def _entries(self) -> dict[str, Any]:
        return super()._entries() | {"members": [member._manifest() for member in self._members]}

    def _restore_entries(self, description: Mapping[str, Any]) -> None:
        super()._restore_entries(description)
        self._description = description  # until the tensors of the members are known

    def _own_tensors(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: tensor for name, tensor in state.items() if not name.partition("/")[0].isdecimal()}

    def _state(self) -> dict[str, Tensor]:
        return {
            f"{position}/{name}": tensor
            for position, member in enumerate(self._members)
            for name, tensor in member._state().items()
        }

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        description = self._description
        del self._description
        self._set_members(_rebuild(description["members"], state), description)


def _rebuild(manifests: Sequence[Mapping[str, Any]], state: Mapping[str, Tensor]) -> list[Any]:
    members = []
    for position, manifest in enumerate(manifests):
        prefix = f"{position}/"
        own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
        members.append(rebuild(manifest, own))
    return members


def check_reads_codes(member: Any, columns: Sequence[Column]) -> None:
    """Raises a ValueError unless a member reads the codes of these columns, as `code_settings` describes."""
    own = getattr(member, "schema_", ())
    wanted = code_settings(columns).values()
    fits = len(own) == len(columns) and all(
        column.kind == settings["kind"] and list(column.levels or ()) == settings.get("levels", [])
        for column, settings in zip(own, wanted, strict=True)
    )
    if not fits:
        raise ValueError(f"{type(member).__name__} within it does not read the columns of this table")


def check_imputers(owner: BaseImputer, members: Sequence[Any]) -> None:
    """Raises a ValueError unless all members are imputers of the table of their owner."""
    for position, member in enumerate(members):
        if not isinstance(member, BaseImputer) or member.schema_ != owner.schema_:
            raise ValueError(f"member {position} is not an imputer of this table")
