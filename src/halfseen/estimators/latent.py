"""Imputers by deep latent-variable models: one estimator with every choice, and the published methods."""

from collections.abc import Callable
from typing import Any

from halfseen.estimators.latent_base import BaseLatentImputer
from halfseen.estimators.latent_parameters import documented
from halfseen.training.progress import Progress
from halfseen.vocabulary import Missingness


@documented
class LatentImputer(BaseLatentImputer):
    r"""Imputes by a deep latent-variable model; all choices are parameters.

    .. math:: p(x_o, o) = \int p(z) \prod_{j \in o} p(x_j \mid z) \, p(o \mid x_o, z) \, dz

    A decoder maps latent variables to the distribution of each column, an encoder maps incomplete rows to an
    approximate posterior; both are trained by a lower bound on the likelihood. Both networks contain a linear
    path that is initialised by a factor analysis, so that training starts at a Gaussian model and becomes
    non-linear as far as the held-out bound improves. Missing values are imputed by importance sampling.
    `score_samples` returns a lower bound on :math:`\log p(x_o)`, which becomes tighter with more
    `n_imputation_draws`.

    Attributes
    ----------
    schema_ : Schema
        What each column is, and why.
    model_ : TabularLatent
        The fitted model; ``model_.sampler.model`` has the networks.
    history_ : History
        The loss (minus the bound) after each epoch, and why training stopped.
    weight_diagnostics_ : dict
        Importance-weight diagnostics on some training rows: ``median_ess``, the median effective sample size,
        and ``unreliable``, the fraction of rows whose weights have a Pareto shape above 0.7.
    interval_inflation_ : list of float
        Factor, per numeric column, by which predictive scales are inflated so that 90% intervals reach 90%
        coverage on values removed from held-out rows. Empty with a model of missingness, for images, and
        without held-out rows.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE. Ipsen, Mattei & Frellsen (2021), not-MIWAE. Simkus & Gutmann (2024),
    Improving variational autoencoder estimation from incomplete data with mixture variational families.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(size=200)
    >>> X = np.column_stack([first, 2 * first + 0.1 * rng.normal(size=200)])
    >>> X[::5, 1] = np.nan
    >>> imputer = LatentImputer(max_epochs=10, random_state=0).fit(X)
    >>> bool(abs(imputer.transform([[1.5, np.nan]])[0, 1] - 3.0) < 0.3)
    True
    """

    def __init__(
        self,
        *,
        posterior: str = "gaussian",
        n_components: int = 5,
        sampling: str = "ancestral",
        bound: str = "iwelbo",
        gradient: str = "stl",
        missingness: Any = Missingness.MAR.value,
        signs: Any = None,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "student-t",
        encoder: str = "preimputed",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 1e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_starts: int = 1,
        n_imputation_draws: int = 200,
        n_chain_steps: int = 0,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.posterior = posterior
        self.n_components = n_components
        self.sampling = sampling
        self.bound = bound
        self.gradient = gradient
        self.missingness = missingness
        self.signs = signs
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.encoder = encoder
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_starts = n_starts
        self.n_imputation_draws = n_imputation_draws
        self.n_chain_steps = n_chain_steps
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


class _GaussianPreset(BaseLatentImputer):
    """A published method with a Gaussian posterior."""

    def __init__(
        self,
        *,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "student-t",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 1e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_imputation_draws: int = 200,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_imputation_draws = n_imputation_draws
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


@documented
class MVAEImputer(_GaussianPreset):
    """Imputes by a variational autoencoder for incomplete rows (MVAE).

    Gaussian posterior, ELBO, missing at random. `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Nazabal et al. (2020), Handling incomplete heterogeneous data using VAEs.
    """

    bound = "elbo"


@documented
class MIWAEImputer(_GaussianPreset):
    """Imputes by MIWAE, an importance-weighted autoencoder for incomplete rows.

    Gaussian posterior, importance-weighted bound, missing at random. `score_samples` returns a lower
    bound on the log-likelihood.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE: deep generative modelling and imputation of incomplete data sets.
    """


@documented
class NotMIWAEImputer(BaseLatentImputer):
    """Imputes by not-MIWAE: MIWAE with a model of the missingness.

    The default assumes that the probability of a missing value depends on the value itself.
    `score_samples` returns a lower bound on the log density of the observed values, without the mask, so
    it can be compared with other imputers. ``model_.mask_probabilities(column, values)`` returns the
    learned probabilities that values are missing.

    References
    ----------
    Ipsen, Mattei & Frellsen (2021), not-MIWAE: deep generative modelling with missing not at random data.
    """

    def __init__(
        self,
        *,
        missingness: Any = Missingness.LOGISTIC.value,
        signs: Any = None,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "gaussian",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 3e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_starts: int = 1,
        n_imputation_draws: int = 200,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.missingness = missingness
        self.signs = signs
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_starts = n_starts
        self.n_imputation_draws = n_imputation_draws
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


class _MixturePreset(BaseLatentImputer):
    """A published method with a mixture posterior."""

    posterior = "mixture"

    def __init__(
        self,
        *,
        n_components: int = 5,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "student-t",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 1e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_imputation_draws: int = 200,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_imputation_draws = n_imputation_draws
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


@documented
class MissVAEImputer(_MixturePreset):
    """Imputes by MissVAE: a variational autoencoder with a mixture posterior.

    Ancestral draws from the mixture, ELBO, missing at random. `score_samples` returns a lower bound on the
    log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """

    bound = "elbo"


@documented
class MissSVAEImputer(_MixturePreset):
    """Imputes by MissSVAE: a variational autoencoder with a mixture posterior and stratified draws.

    Draws from each component, stratified ELBO, missing at random. `score_samples` returns a lower bound
    on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """

    bound = "elbo"
    sampling = "stratified"


@documented
class MissIWAEImputer(_MixturePreset):
    """Imputes by MissIWAE: an importance-weighted autoencoder with a mixture posterior.

    Ancestral draws from the mixture, importance-weighted bound, missing at random. `score_samples`
    returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """


@documented
class MissSIWAEImputer(_MixturePreset):
    """Imputes by MissSIWAE: an importance-weighted autoencoder with a mixture posterior and stratified draws.

    Draws from each component, stratified importance-weighted bound, missing at random. `score_samples`
    returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """

    sampling = "stratified"


@documented
class DeMissVAEImputer(_GaussianPreset):
    """Imputes by DeMissVAE: decoder and encoder are trained by separate bounds on rows with many imputations.

    The posterior of a row is the mixture of the posteriors of its `n_draws` imputations, which are kept
    from epoch to epoch and redrawn from the model. Afterwards an encoder for incomplete rows is trained
    for the finished decoder, and missing values are imputed as by the other methods. Missing at random.
    `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families, section 4.2.
    """

    posterior = "imputations"
