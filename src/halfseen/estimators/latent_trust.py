"""Whether the importance weights behind a latent imputer's answers can be trusted."""

from halfseen.data.incomplete import Incomplete
from halfseen.errors import warn_user
from halfseen.objectives.weights import MIN_DRAWS
from halfseen.samplers.importance import ImportanceSampler

TRUST_ROWS = 200  # whose weights are looked at
ENOUGH_ROWS = 30  # to warn of what is seen
POOR_SHARE = 0.25  # of draws that count
UNTRUSTED = 0.7  # the shape of a tail from which weights mean little


def look_at_weights(sampler: ImportanceSampler, rows: Incomplete) -> dict[str, float]:
    """Returns a summary of the importance weights of some rows with holes; warns if they are poor."""
    some = rows[(~rows.observed).any(dim=1)][:TRUST_ROWS]
    if len(some) == 0 or sampler.n_draws < MIN_DRAWS:
        return {}
    trust = sampler.trust(some)
    share = float((trust.pareto_k > UNTRUSTED).double().mean())
    ess = float(trust.ess.median())
    if share > 0.5 and ess < POOR_SHARE * sampler.n_draws and len(some) >= ENOUGH_ROWS:
        warn_user(
            f"For {share:.0%} of rows the importance weights have too heavy a tail (Pareto k above "
            f"{UNTRUSTED}; half of the rows have an effective number of draws below {ess:.0f} of "
            f"{sampler.n_draws}). Means may still do, but intervals and draws are too narrow: "
            "raise n_imputation_draws, lower n_latent, or use posterior='mixture'."
        )
    return {"median_ess": ess, "untrusted": share}
