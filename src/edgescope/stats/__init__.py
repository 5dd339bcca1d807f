"""Honest statistics of correlated, skewed, drifting latencies: numpy and the standard library only.

`intervals` gives the interval of a mean and of a percentile, `sequential` says when to start counting and when to stop,
and at how many speeds the machine ran, `pairs` whether one variant is faster than another, `alternation` by how much,
from turns. Each is tested on simulated series with known answers; edgescope docs metrics defines every number once.
"""

from edgescope.stats.intervals import (
    MIN_EFFECTIVE,
    Interval,
    early_stopping_estimate,
    effective_n,
    mean_interval,
    needed,
    percentile,
    quantile_effective_n,
    quantile_interval,
    quantile_metric,
    reach,
    refusal,
    tau,
    upper_bound,
    upper_rank,
)
from edgescope.stats.pairs import Judgement, is_different, judge, judge_pairs, paired_log_ratio, wilson
from edgescope.stats.sequential import Drift, State, States, StopRule, drift, states, warm, warmup_length
from edgescope.stats.shares import bursty_share, clustered_share

__all__ = [
    "MIN_EFFECTIVE",
    "Drift",
    "Interval",
    "Judgement",
    "State",
    "States",
    "StopRule",
    "bursty_share",
    "clustered_share",
    "drift",
    "early_stopping_estimate",
    "effective_n",
    "is_different",
    "judge",
    "judge_pairs",
    "mean_interval",
    "needed",
    "paired_log_ratio",
    "percentile",
    "quantile_effective_n",
    "quantile_interval",
    "quantile_metric",
    "reach",
    "refusal",
    "states",
    "tau",
    "upper_bound",
    "upper_rank",
    "warm",
    "warmup_length",
    "wilson",
]
