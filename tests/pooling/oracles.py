"""Rubin's rules and the pooled tests, written out slowly, one number at a time."""

import math


def rubin(estimates, variances, df_complete=math.inf):
    """Returns estimate, standard error and Barnard and Rubin's degrees of freedom of one coefficient."""
    m = len(estimates)
    mean = math.fsum(estimates) / m
    within = math.fsum(variances) / m
    between = math.fsum((q - mean) ** 2 for q in estimates) / (m - 1)
    total = within + between + between / m
    share = (between + between / m) / total
    df = (m - 1) / share**2
    if math.isfinite(df_complete):
        seen = (df_complete + 1) / (df_complete + 3) * df_complete * (1 - share)
        df = 1 / (1 / df + 1 / seen)
    return mean, math.sqrt(total), df


def moment_df(k, m, r):
    t = k * (m - 1)
    if t > 4:
        return 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2
    return 0.5 * t * (1 + 1 / k) * (1 + 1 / r) ** 2
