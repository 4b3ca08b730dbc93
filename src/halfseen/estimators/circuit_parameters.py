"""The parameters of predictors with a circuit, described once and put into the docstring of each class."""

from halfseen.estimators._documented import documented_by

DESCRIPTIONS = {
    "n_leaves": ("int", "The number of components of each column."),
    "n_channels": (
        "int or sequence of int",
        "The number of sums in each region of the tree. If it is a sequence, its last number is that of the "
        "top level, and its first number is used for all further levels below. This number and `n_leaves` "
        "are limited to one for every 16 rows.",
    ),
    "structure": (
        '{"tree", "shallow"}',
        "A tree over the columns, at most 5,000, by the mutual information of all pairs; or a single product "
        "of all columns.",
    ),
    "n_trees": (
        "int",
        "The number of trees that are mixed. The first is built from the mutual information of the "
        "columns, the others from a noisy version of it.",
    ),
    "algorithm": (
        '{"gradient", "em"}',
        "How the circuit is trained: components and weights by gradients, or only the weights of sums, by "
        "EM, which has no learning rate and uses all rows in every epoch; components then keep their initial "
        "values.",
    ),
    "beta": (
        "float",
        "The weight of the log-likelihood of the inputs, per column, relative to that of the target given "
        "the inputs. Larger values make the circuit a better density and a worse predictor.",
    ),
    "max_dropped": (
        "float",
        "In training, inputs of each row are left out at a rate between 0 and this one, and integrated out.",
    ),
    "noise": (
        "float",
        "In training, Gaussian noise of this standard deviation is added to numeric inputs, in units of "
        "their own standard deviation, so that components cannot describe single values.",
    ),
    "batch_size": ("int", "Rows per training step; fewer if the table has fewer than 16 times as many."),
}

documented = documented_by(DESCRIPTIONS)

IMAGE_DESCRIPTIONS = DESCRIPTIONS | {
    "n_leaves": ("int", "The number of components of a patch, shared by all positions."),
    "n_channels": (
        "int or sequence of int",
        "The number of sums in each region of each level, from the bottom; the last number is used "
        "for all further levels.",
    ),
    "structure": (
        '{"deep", "shallow"}',
        "Products of 2 x 2 neighbouring regions, level by level (HT), or one product of all patches (CP).",
    ),
    "patch": ("int", "Height and width of the patches that the leaves describe."),
    "pixels": (
        '{"gaussian", "discretised"}',
        "The family of pixels with more than two values. Discretised pixels have a probability for each "
        "shade (a logistic distribution, rounded), so that likelihoods are comparable with those of other "
        "models; they take longer.",
    ),
    "shifts": (
        "int",
        "The maximum shift of images in pixels. In training, shifts are random; predictions are averaged "
        "over all (2 * shifts + 1)**2 shifts, which multiplies their time by this number.",
    ),
    "averaging": (
        '{"geometric", "mixture"}',
        "How predictions are averaged over shifts: by the geometric mean of the probabilities of each class, "
        "or as those of the mixture of the shifted densities, which is normalised.",
    ),
    "beta": (
        "float",
        "The weight of the log-likelihood of a pixel, relative to that of the class given the pixels.",
    ),
    "max_dropped": (
        "float",
        "In training, pixels of each image are left out at a rate between 0 and this one, single pixels or "
        "squares of 4 x 4, and integrated out.",
    ),
    "algorithm": (
        '{"gradient", "em"}',
        "How the weights of sums are trained: by gradients, or by EM, which has no learning rate and uses "
        "all images in every epoch.",
    ),
    "schedule": (
        '{"cosine", "linear", "step", "constant"}',
        "How the learning rate decreases: to zero along half a cosine; linearly to zero in the last fifth of "
        "the epochs, as in the code of the authors; to a tenth in the last fifth, as in their paper; or "
        "not at all.",
    ),
    "learning_rate": ("float", "Initial learning rate; `schedule` determines how it decreases."),
    "weight_decay": (
        "float",
        "The weight of the sum of squares of all sum weights, which pulls them towards equal weights.",
    ),
    "batch_size": ("int", "Images per training step; fewer if there are fewer than 16 times as many."),
    "image_shape": (
        "(H, W) or (C, H, W)",
        "The shape of an image, if images are given as rows of pixels. Not needed for arrays of shape "
        "(n_images, H, W) or (n_images, H, W, C).",
    ),
}

documented_images = documented_by(IMAGE_DESCRIPTIONS)
