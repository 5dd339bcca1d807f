"""How long a request and its answer take on the way, as random draws to which any network can be applied.

    one way = payload / bandwidth (a FIFO queue where a rate is offered) + recovery of lost segments
    there and back = up + down + one round trip

Lost segments (each lost on its own with probability p, n = ceil(payload / 1448 bytes), over one warm TCP connection):

* those with three or more behind them are seen by duplicate or selective acknowledgements and sent again after one
  round trip, all in the same one; a segment lost again waits another (fast retransmit: RFC 5681; SACK: RFC 6675);
* one of the last three lost is noticed by a tail loss probe after two round trips (RFC 8985, Linux's default); lost
  again, or where the message is one segment, by the time-out max(200 ms, RTT + 4 x deviation), doubled each time it is
  lost once more (RFC 6298 with Linux's least time-out).

With u uniform, the rounds of sending again until m segments are through are the smallest r with (1 - p^(r+1))^m >= u.

Every random number is drawn once and kept: two networks are compared on the same draws, so more bandwidth never
hurts and a longer round trip never helps, exactly, draw by draw. Not modelled: slow start of a cold connection, TLS
handshakes, losses that come in bursts, other traffic that reacts to ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgescope.wings.offload.network import Profile, median, moved

Floats = NDArray[np.float64]

SEGMENT_BYTES = 1448
"""Payload of a segment on Ethernet with time stamps: 1500 - 20 (IP) - 20 (TCP) - 12."""
TAIL_SEGMENTS = 3
LEAST_TIMEOUT_S = 0.2
MOST_ROUNDS = 12
"""Time-outs double up to here: 0.2 s x 2^12 is beyond any use."""


@dataclass(frozen=True)
class Transit:
    """Random numbers for N queries, (rows, N): a profile turns them into times by arithmetic alone."""

    rtt_pick: NDArray[np.int64]
    """Which measured round trip each query takes, as a number below 2^31."""
    excess: Floats
    """Exponential, mean 1: the round trip's excess if only a jitter is known."""
    band_pick: NDArray[np.int64]
    body: Floats
    tail: Floats
    """Uniform in (0, 1), (rows, N, 2): up and down."""
    known: dict[tuple[float, int, int], tuple[Floats, Floats]] = field(default_factory=dict)
    """Rounds of sending again by (loss, segments, way): neither bandwidth nor round trip changes them."""


def draw(rng: np.random.Generator, rows: int, n: int) -> Transit:
    """Return the draws of `rows` x `n` queries."""
    shape = (rows, n)
    return Transit(
        rng.integers(0, 2**31, shape),
        rng.exponential(1.0, shape),
        rng.integers(0, 2**31, shape),
        rng.uniform(size=(*shape, 2)),
        rng.uniform(size=(*shape, 2)),
    )


def round_trips(profile: Profile, draws: Transit) -> Floats:
    """Return the round trip of every draw in seconds."""
    if profile.rtt_samples_s:
        samples = np.array(profile.rtt_samples_s)
        return np.asarray(samples[draws.rtt_pick % len(samples)], dtype=np.float64)
    return np.maximum(0.0, profile.rtt_s + profile.jitter_s * (draws.excess - math.log(2.0)))


def deviation_s(profile: Profile) -> float:
    """Return the mean deviation of the round trip, which TCP's time-out uses."""
    if profile.rtt_samples_s:
        spread = np.array(profile.rtt_samples_s)
        return float(np.abs(spread - spread.mean()).mean())
    return profile.jitter_s


def bandwidth(profile: Profile, way: str) -> float:
    """Return the bits per second that one connection gets: the given bandwidth, unless loss holds TCP below it.

    Mathis et al. (CCR 27(3), 1997): segment / RTT x sqrt(3/2) / sqrt(p), for Reno; CUBIC and BBR do better on long fat
    links. A measured bandwidth has its losses in it already.
    """
    value = profile.up_bps if way == "up" else profile.down_bps
    samples = profile.up_samples_bps if way == "up" else profile.down_samples_bps
    if samples or profile.loss <= 0 or profile.rtt_s <= 0:
        return value
    return min(value, 8 * SEGMENT_BYTES / profile.rtt_s * math.sqrt(1.5 / profile.loss))


def serialisation(profile: Profile, draws: Transit, way: str, payload_bytes: float) -> Floats:
    """Return the seconds that each query's payload occupies the link, (rows, N)."""
    samples = profile.up_samples_bps if way == "up" else profile.down_samples_bps
    each = 8 * payload_bytes / bandwidth(profile, way)
    if not samples:
        return np.full(draws.band_pick.shape, each)
    relative = np.array(samples) / median(samples)
    return np.asarray(each / relative[draws.band_pick % len(relative)], dtype=np.float64)


def recovery(profile: Profile, draws: Transit, rtt: Floats, payload_bytes: float, way: int) -> Floats:
    """Return the seconds that lost segments add one way (0 up, 1 down), (rows, N)."""
    if profile.loss <= 0 or payload_bytes <= 0:
        return np.zeros(rtt.shape)
    n = math.ceil(payload_bytes / SEGMENT_BYTES)
    key = (profile.loss, n, way)
    if key not in draws.known:
        body = _rounds(profile.loss, n - TAIL_SEGMENTS, draws.body[..., way])
        draws.known[key] = body, _rounds(profile.loss, min(n, TAIL_SEGMENTS), draws.tail[..., way])
    body, tail = draws.known[key]
    timeout = max(LEAST_TIMEOUT_S, profile.rtt_s + 4 * deviation_s(profile))
    if n == 1:
        return np.asarray(timeout * (2.0**tail - 1.0), dtype=np.float64)
    probed = np.minimum(timeout, 2 * rtt) + timeout * (2.0 ** np.maximum(tail - 1, 0) - 1.0)
    return np.asarray(body * rtt + np.where(tail > 0, probed, 0.0), dtype=np.float64)


def _rounds(p: float, m: int, u: Floats) -> Floats:
    """Return how many rounds of sending again it takes until all m segments are through."""
    if m <= 0:
        return np.zeros(u.shape)
    # (1 - p^k)^m >= u  <=>  k >= log(1 - u^(1/m)) / log(p), k = r + 1 sendings; expm1 keeps the tail's digits
    sendings = np.ceil(np.log(-np.expm1(np.log(u) / m)) / math.log(p))
    return np.asarray(np.clip(sendings - 1, 0, MOST_ROUNDS), dtype=np.float64)


def with_rtt(profile: Profile, rtt_s: float) -> Profile:
    """Return the network with another median round trip; its spread stays."""
    samples = moved(profile.rtt_samples_s, rtt_s) if profile.rtt_samples_s else ()
    return replace(profile, rtt_s=rtt_s, rtt_samples_s=samples)


def with_bandwidth(profile: Profile, up_bps: float) -> Profile:
    """Return the network with another bandwidth up, and down in the same proportion."""
    ratio = up_bps / profile.up_bps
    return replace(
        profile,
        up_bps=up_bps,
        down_bps=profile.down_bps * ratio,
        up_samples_bps=tuple(s * ratio for s in profile.up_samples_bps),
        down_samples_bps=tuple(s * ratio for s in profile.down_samples_bps),
    )
