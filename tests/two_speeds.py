"""A host of two speeds on which two variants are measured, in fake time: the ratio at each is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgescope.stats.alternation import BASE, OURS, Turns, alternation_ratio

TURN_S, BLOCKS, START_S = 0.1, 5, 3.0
SLOWED = (1.6, 1.35)
"""How many times slower baseline and candidate are in the slow state."""
RATIO = 4.0
"""How many times faster the candidate is in the fast state."""


def abba(base: Sequence[float], ours: Sequence[float]) -> Turns:
    """Return the turns of blocks (baseline, candidate, candidate, baseline) from each side's logs, two a block."""
    found: list[float] = []
    for i in range(0, len(base), 2):
        found += [base[i], *ours[i : i + 2], base[i + 1]]
    return Turns([BASE, OURS, OURS, BASE] * (len(base) // 2), found)


class Host:
    """Two speeds, each kept for a while that is drawn anew."""

    def __init__(
        self,
        dwell_s: tuple[float, float],
        seed: int,
        *,
        process: float = 0.02,
        turn: float = 0.03,
        whole_s: float = 2e5,
    ) -> None:
        rng = np.random.default_rng(seed)
        stays = rng.uniform(*dwell_s, size=int(whole_s / np.mean(dwell_s)))
        self.edges, self.process, self.turn = np.cumsum(stays), process, turn
        self.stays = stays

    pair_s = START_S + 4 * BLOCKS * TURN_S
    process_s = START_S + 2 * BLOCKS * TURN_S

    def ratio(self) -> float:
        """Return the ratio over the whole time, slow and fast, the mean of logs; at full speed it is RATIO."""
        slow = self.stays[1::2].sum() / self.stays.sum()
        return float(RATIO * np.exp(slow * np.log(SLOWED[0] / SLOWED[1])))

    def slow(self, t_s: np.ndarray) -> np.ndarray:
        """Return whether the host is slow at these times."""
        return np.searchsorted(self.edges, t_s) % 2 == 1

    def log_time(self, rng, side: int, t_s: np.ndarray) -> np.ndarray:
        """Return the log of what one query takes in turns at these times, of one process."""
        base = -np.log(RATIO) * side + rng.normal(0, self.process / np.sqrt(2))
        return base + np.log(SLOWED[side]) * self.slow(t_s) + rng.normal(0, self.turn, len(t_s))

    def pair(self, rng, at_s: float) -> Turns:
        """Return one pair of processes that are started at a time."""
        at = at_s + START_S + TURN_S * np.arange(4 * BLOCKS)
        mine = np.isin(np.arange(4 * BLOCKS) % 4, (0, 3))
        a, b = self.log_time(rng, 0, at[mine]), self.log_time(rng, 1, at[~mine])
        return abba(a.tolist(), b.tolist())

    def begin(self, rng) -> float:
        return float(rng.uniform(0, self.edges[-1] - 500))

    def pairs(self, rng, n: int, over_s: float = 0.0) -> list[Turns]:
        """Return n pairs, each started when the one before has ended, or spread evenly over so many seconds."""
        begin, every = self.begin(rng), max(self.pair_s, over_s / n)
        late = rng.uniform(0, every - self.pair_s, n)
        return [self.pair(rng, begin + i * every + late[i]) for i in range(n)]

    def one_by_one(self, rng, n: int) -> tuple[list[float], list[float]]:
        """Return the medians of n processes of each variant, in pairs one after another."""
        t, found = self.begin(rng), ([], [])
        for _ in range(n):
            for side in rng.permutation(2):
                at = t + START_S + TURN_S * np.arange(2 * BLOCKS)
                found[side].append(float(np.exp(np.median(self.log_time(rng, int(side), at)))))
                t += self.process_s
        return found

    def until(self, rng, decided: float, enough: int, most: int, spread_s: float) -> list[Turns]:
        """Return as many pairs as it takes for the interval to be that narrow."""
        begin, found = self.begin(rng), []
        while True:
            found.append(self.pair(rng, begin + len(found) * self.pair_s))
            ratio = alternation_ratio(found)
            narrow = ratio.lo > 0 and np.log(ratio.hi / ratio.lo) / 2 <= np.log1p(decided)
            spread = len(found) * self.pair_s >= spread_s
            if len(found) >= most or (len(found) >= enough and narrow and spread):
                return found
