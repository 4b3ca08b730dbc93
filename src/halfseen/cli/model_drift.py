"""The diagnostic of a saved predictor in ``halfseen describe``: the drift of its predictions."""

from dataclasses import dataclass
from typing import Any

import halfseen
from halfseen.cli.applying import match_columns
from halfseen.cli.progress import Reporter
from halfseen.cli.tables import TableError, TableFile
from halfseen.evaluation.sparsity import VSPCurve, vsp_curve


@dataclass(frozen=True)
class ModelDrift:
    """What is known of a saved predictor: its class, what of its answers is followed, and the curve."""

    kind: str
    followed: str
    curve: VSPCurve

    def to_dict(self) -> dict[str, Any]:
        """Returns the curve and its names as values that JSON can hold."""
        return {"class": self.kind, "followed": self.followed, **self.curve.to_dict()}


def measure_model(path: str, file: TableFile, label: str | None, seed: int, reporter: Reporter) -> ModelDrift:
    """Return how the predictions of a saved model for the rows of a table drift with the known values.

    Parameters
    ----------
    path : str
        The model file.
    file : TableFile
        The table; columns that the model does not know, such as the target, are left out, and columns that
        the table lacks count as missing.
    label : str or None
        The class whose probability is followed, as text; not needed for two classes or for numbers.
    seed : int
        Seeds rows and subsets.
    reporter : Reporter
        Reports columns that the table lacks, or that have another name.
    """
    model = halfseen.load(path)
    if not all(hasattr(model, name) for name in ("predict", "feature_names_in_", "schema_")):
        raise TableError(
            f"{path} holds a {type(model).__name__}; --model needs a regressor or classifier that was fitted "
            "to a table with column names"
        )
    table = match_columns(file, model, reporter).inputs
    output, followed = _output(model, label)
    curve = vsp_curve(model, table, output=output, random_state=seed)
    return ModelDrift(type(model).__name__, followed, curve)


def _output(model: Any, label: str | None) -> tuple[Any, str]:
    """Return the class to follow as the model knows it, and the name of what is followed."""
    if not hasattr(model, "predict_proba"):
        if label is not None:
            raise TableError("--class is for classifiers; the model predicts numbers")
        return None, "the prediction"
    classes = {str(one): one for one in model.classes_.tolist()}
    if label is None and len(classes) != 2:
        raise TableError(f"the model has {len(classes)} classes: choose one by --class, {', '.join(classes)}")
    if label is not None and label not in classes:
        raise TableError(f"the model has no class {label!r}; its classes are {', '.join(classes)}")
    chosen = list(classes)[1] if label is None else label
    return classes[chosen], f"the probability of {chosen}"
