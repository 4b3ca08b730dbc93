"""Diagnostics of the importance weights with which a latent-variable imputer imputes."""

from halfseen.data.incomplete import Incomplete
from halfseen.errors import warn_user
from halfseen.objectives.weights import MIN_DRAWS
from halfseen.samplers.importance import ImportanceSampler

CHECKED_ROWS = 200  # rows whose weights are computed
ENOUGH_ROWS = 30  # fewer incomplete rows give no reason to warn
POOR_SHARE = 0.25  # of the number of draws: a smaller effective sample size is poor
UNRELIABLE = 0.7  # the Pareto shape above which importance weights are unreliable


def check_importance_weights(sampler: ImportanceSampler, rows: Incomplete) -> dict[str, float]:
    """Returns a summary of the importance weights of some incomplete rows; warns if they are poor."""
    some = rows[(~rows.observed).any(dim=1)][:CHECKED_ROWS]
    if len(some) == 0 or sampler.n_draws < MIN_DRAWS:
        return {}
    weight_diagnostics = sampler.weight_diagnostics(some)
    share = float((weight_diagnostics.pareto_k > UNRELIABLE).double().mean())
    ess = float(weight_diagnostics.ess.median())
    if share > 0.5 and ess < POOR_SHARE * sampler.n_draws and len(some) >= ENOUGH_ROWS:
        warn_user(
            f"The importance weights of {share:.0%} of the rows have heavy tails (Pareto k above "
            f"{UNRELIABLE}), and the median effective sample size is {ess:.0f} of {sampler.n_draws} draws. "
            "Means may still be accurate, but intervals and draws are too narrow: raise n_imputation_draws, "
            "lower n_latent, or use posterior='mixture'."
        )
    return {"median_ess": ess, "unreliable": share}
