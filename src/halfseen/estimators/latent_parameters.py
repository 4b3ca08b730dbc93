"""The parameters of latent-variable imputers, described once and put into the docstring of each class."""

from halfseen.estimators._documented import documented_by

DESCRIPTIONS = {
    "posterior": (
        '{"gaussian", "mixture", "imputations"}',
        "The family of the approximate posterior :math:`q(z \\mid x_o)`. A mixture can represent "
        'several modes that missing values leave possible. With ``"imputations"`` the posterior '
        "is a mixture over `n_draws` imputations of each row, which are updated in training.",
    ),
    "n_components": (
        "int",
        "The number of components of a mixture posterior.",
    ),
    "sampling": (
        '{"ancestral", "stratified"}',
        "Whether training draws from the mixture, or separately from each of its components.",
    ),
    "bound": (
        '{"elbo", "iwelbo", "siwelbo-loose"}',
        'The lower bound that training maximises. ``"siwelbo-loose"`` is a looser '
        "importance-weighted bound for stratified draws that prevents components from collapsing.",
    ),
    "gradient": (
        '{"full", "stl", "dreg"}',
        "The gradient estimator of the posterior: full, sticking the landing, or doubly reparametrised.",
    ),
    "missingness": (
        "str, mechanism or function",
        'The assumed mechanism: ``"mar"`` (missing at random); a probability that depends on the '
        'missing value itself (``"self-masking-logistic"``, ``"self-masking-monotone"``, '
        '``"self-masking-shared-slope"``, ``"self-masking-flexible"``); or a probability that '
        'depends on the whole row (``"linear"``, ``"nonlinear"``). If the mechanism is known: a '
        "fitted mechanism of `halfseen.missingness`, or a function (also a frozen torch module) "
        "from a tensor of rows to the probabilities that their values are missing.",
    ),
    "signs": (
        "int, sequence or dict",
        'The direction of ``"self-masking-logistic"`` and ``"self-masking-monotone"``: +1 if '
        "larger values are missing more often, -1 if smaller values are. By default, a logistic "
        "mechanism learns its direction and a monotone one rises.",
    ),
    "n_draws": (
        "int",
        "Latent draws per row in training; divided among the components if sampling is stratified.",
    ),
    "n_latent": (
        'int or "auto"',
        'The number of latent variables. ``"auto"`` is one less than the number of columns, at '
        "most 16, and 32 for images.",
    ),
    "numeric": (
        '{"student-t", "gaussian", "shared-gaussian"}',
        'The distribution of numeric columns given the latent variables; ``"shared-gaussian"`` '
        "has one variance per column.",
    ),
    "likelihoods": (
        "dict",
        "The distribution of individual columns given the latent variables, by column name, in place "
        'of `numeric`: ``"poisson"``, ``"negative-binomial"`` or ``"zero-inflated-poisson"`` for counts, '
        '``"log-normal"`` for positive numbers, ``"gaussian"``, ``"shared-gaussian"`` or ``"student-t"`` for '
        "any numbers, "
        '``"categorical"`` or ``"ordinal"`` for levels. Not for images.',
    ),
    "encoder": (
        '{"preimputed", "zero", "learned", "set"} or callable',
        "What the encoder receives for missing values, in addition to the mask: linear predictions, zeros, or"
        ' learned constants. With ``"set"`` it sees the set of observed values. A function '
        "``encoder(n_inputs, n_outputs)`` that returns a torch module replaces the network: its inputs "
        "are the features, with missing values preimputed, followed by the mask. Not for images.",
    ),
    "decoder": (
        '{"residual", "linear"} or callable',
        'The decoder network. A linear decoder with ``numeric="shared-gaussian"`` is probabilistic PCA. '
        "A function ``decoder(n_inputs, n_outputs)`` that returns a torch module replaces the network: "
        "it maps latent variables of shape (..., n_inputs) to the parameters of the column "
        "distributions. User-defined networks are added to a linear map, with a factor that starts at zero.",
    ),
    "width": (
        "int",
        "Units of each layer of the networks.",
    ),
    "n_blocks": (
        "int",
        "Residual blocks of each network.",
    ),
    "batch_size": (
        'int or "auto"',
        'Rows per training step. ``"auto"`` chooses it together with `max_epochs`; at most 128 for images.',
    ),
    "max_epochs": (
        'int or "auto"',
        'Maximum number of epochs. ``"auto"`` targets about 2,500 steps, shared between both '
        "initialisations of a self-masking model on large tables.",
    ),
    "patience": (
        "int",
        "Training stops after this many epochs without an improvement.",
    ),
    "validation_fraction": (
        "float",
        "The fraction of rows held out to choose the best epoch and to calibrate intervals. "
        "Tables with fewer than 50 rows hold out none.",
    ),
    "n_starts": (
        "int",
        "The number of trainings, of which the one with the best held-out bound is kept. "
        "Self-masking models are trained twice as often: half start from a probit model of the "
        "mechanism, half from a model in which all values beyond the observed range are missing.",
    ),
    "n_imputation_draws": (
        "int",
        "Latent draws per row for imputation by importance sampling. `transform` and `interval` use "
        "fewer for rows whose effective sample size reaches a fifth of this number sooner.",
    ),
    "n_chain_steps": (
        "int",
        "Steps of a Markov chain (see `chain_kernel`) that `sample` applies to each draw after importance "
        "resampling, for rows with poor importance weights. `interval_inflation_` does not apply "
        "to such draws. Not for mixtures.",
    ),
    "chain_kernel": (
        '{"mwg", "pseudo-gibbs", "ac-mwg"}',
        "The transitions of these chains: Metropolis within Gibbs, pseudo-Gibbs (approximate), or adaptive "
        "collapsed Metropolis within Gibbs (missing at random only).",
    ),
    "image_shape": (
        "tuple of int",
        "(H, W) or (C, H, W), with sides of at least 8, if X holds images: rows of pixels in this order, or "
        "arrays of shape (n_images, H, W) or (n_images, H, W, C). Networks are then "
        "convolutional, with one map per 4 units of `width`. All pixels have one kind, inferred from their "
        "values: binary, at most 256 grey levels (integers, or multiples of 1/255), or real numbers. Pixels "
        "that never change are modelled like the others. Models of missingness have one bias per "
        "pixel and share all other parameters; `signs` is one number.",
    ),
}

documented = documented_by(DESCRIPTIONS)
