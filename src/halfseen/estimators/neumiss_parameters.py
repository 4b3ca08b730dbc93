"""The parameters of NeuMiss estimators, described once and put into the docstring of each class."""

from halfseen.estimators._documented import documented_by

DESCRIPTIONS = {
    "missingness": (
        '{"auto", "mar", "self-masking-probit", "self-masking-gaussian"}',
        "The assumed mechanism: missing at random; a probability that rises or falls with the missing "
        'value; or a probability that is largest around some value. ``"auto"`` takes the one that '
        "predicts held-out targets best.",
    ),
    "head": (
        '{"auto", "linear", "mlp"}',
        "Whether networks correct the linear prediction: with a weight chosen on held-out rows "
        '(``"auto"``), never (``"linear"``), or with weight 1 (``"mlp"``).',
    ),
    "n_networks": ("int", "The number of networks, whose mean is the correction."),
    "width": ("int", "Units in each of the two hidden layers of a network."),
    "max_epochs": ("int", "Maximum number of epochs of the networks."),
    "batch_size": ("int", "Rows per training step of the networks."),
    "learning_rate": ("float", "Initial learning rate of the networks."),
    "validation_fraction": (
        "float",
        "The fraction of rows held out to choose the model of missingness, to stop the training and to "
        "calibrate. Tables with fewer than 50 rows hold out none and use the linear prediction.",
    ),
    "ridge": (
        'float or "auto"',
        "Regularisation of the Gaussian: the number of pseudo-rows of uncorrelated data that are added to "
        'the table. ``"auto"`` chooses it by held-out likelihood if there are few rows.',
    ),
}

NETWORK_DESCRIPTIONS = {
    "depth": ("int", "The number of Neumann steps."),
    "shared_weights": (
        "bool",
        "Whether all steps share one matrix (the network of 2021), or each step has its own (that of 2020).",
    ),
    "residual": (
        "bool",
        "Whether steps with matrices of their own have residual connections; steps with a shared matrix "
        "always have them.",
    ),
    "width": ("int", "Units of each hidden layer of the head; 0 for a linear head."),
    "n_blocks": ("int", "Residual blocks of the head after its first hidden layer."),
    "batch_size": (
        'int or "auto"',
        'Rows per training step. ``"auto"`` makes about 20 batches of 16 to 512 rows per epoch.',
    ),
    "validation_fraction": (
        "float",
        "The fraction of rows held out to choose the best epoch and to calibrate intervals. Tables with "
        "fewer than 50 rows hold out none.",
    ),
}

documented = documented_by(DESCRIPTIONS)
documented_network = documented_by(NETWORK_DESCRIPTIONS)
