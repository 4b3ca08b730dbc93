"""The tolerances of the whole suite, in one place: how close is equal, and how surprising is wrong."""

EXACT = 1e-10
"""For identities that hold exactly in real arithmetic, in float64."""

QUADRATURE = 1e-6
"""For a closed form against an integral over a grid."""

FAILURE_RATE = 1e-5
"""The p-value below which a statistical test fails: once in 100,000 runs of a right program."""
