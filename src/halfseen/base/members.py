"""Creating and checking the members of estimators that consist of other estimators."""

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from halfseen.base.imputer import BaseImputer
from halfseen.data.columns import Column
from halfseen.data.schema import code_settings


def make_member(owner: BaseImputer, template: BaseImputer, seed: int) -> Any:
    """Returns an unfitted copy of an imputer with the schema of the imputer that contains it."""
    member: Any = clone(template)
    member.schema_, member.seed_, member.n_features_in_ = owner.schema_, seed, owner.n_features_in_
    if hasattr(owner, "feature_names_in_"):
        member.feature_names_in_ = owner.feature_names_in_
    return member


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
