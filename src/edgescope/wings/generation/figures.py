"""The figures of generation from the moments of each token: rates, gaps, lengths, goodput. No engine is needed.

Only answers of queries that succeeded within the window count, each whole. The gap between two tokens of an answer
grows with what is in the cache, a line that every answer repeats: for the interval of the decode rate it is taken out,
and what is left is treated as any series of neighbours that resemble each other (`stats.mean_interval`). Answers that
are under way together share their steps, so their gaps are put in the order of time, where they stand side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from edgescope.analysis.run.summary import throughput
from edgescope.records import QUERY_OK, UNIT, Absent, Field, Measured, Queries, Spans, Window
from edgescope.records.lazy import NDArray, np
from edgescope.stats import Interval, mean_interval, quantile_metric, states
from edgescope.wings.generation.engine import Generated

UNCOUNTED = Absent("the server does not say how many tokens came at a time")
ONE_TOKEN = Absent("n/a: have answers of 1 token, need 2")
NONE = Absent("no answer ended in the window")
UNSTATED = Absent("the engine does not say what it had computed before")


@dataclass(frozen=True)
class Answer:
    """One answer, and when its request was handed to the engine."""

    issued_ns: int
    got: Generated

    @property
    def first_ns(self) -> int:
        """Return when its first token could be used."""
        return self.got.times_ns[0]

    @property
    def last_ns(self) -> int:
        """Return when its last token could be used."""
        return self.got.times_ns[-1]

    @property
    def itl_s(self) -> float:
        """Return the mean seconds from a token to the next; NaN for an answer of one."""
        later = self.got.output_tokens - 1
        return (self.last_ns - self.first_ns) * 1e-9 / later if later > 0 else float("nan")

    @property
    def singly(self) -> bool:
        """Return whether each arrival was one token, so that every token has its moment."""
        return len(self.got.times_ns) == self.got.output_tokens

    def marks(self) -> dict[str, int]:
        """Return the moments of the query."""
        times = self.got.times_ns
        second = {"second_token": times[1]} if len(times) > 1 and self.got.counts[0] == 1 else {}
        return {"first_token": times[0], **second, **self.got.marks}


class Answers:
    """The answers of a run by the number of their query, and the broken ones by kind."""

    def __init__(self) -> None:
        self.found: dict[int, Answer] = {}
        self.broken: Counter[str] = Counter()

    def of(self, rows: Queries) -> list[Answer]:
        """Return the answers of these rows that succeeded, in the order of their queries."""
        ok = rows.columns["status"] == QUERY_OK
        return [self.found[n] for n in rows.columns["query_id"][ok].tolist() if n in self.found]


@dataclass(frozen=True)
class Limits:
    """What a request must keep to count for goodput, in seconds; 0: no limit."""

    ttft_s: float = 0.0
    itl_s: float = 0.0
    latency_s: float = 0.0
    """To the last token: the trial's deadline."""


class Figures:
    """Every metric of some answers."""

    def __init__(self, answers: Sequence[Answer], rows: Queries, window: Window) -> None:
        self.answers, self.rows, self.window = answers, rows, window

    def all(self, limits: Limits, broken: Mapping[str, int]) -> dict[str, Field]:
        """Return them by name."""
        return {
            "decode_tps": self.decode(),
            "prefill_tps": self.prefill(),
            "output_tps": self.output(),
            **self._itl(),
            **self._gaps(),
            **self._lengths(),
            **self._good(limits),
            **{f"broken_{kind}": Measured(float(n), "queries") for kind, n in sorted(broken.items())},
        }

    def decode(self) -> Field:
        """Return the tokens a second that one answer gets once it has begun, with an interval."""
        later = sum(a.got.output_tokens - 1 for a in self.answers)
        spent = sum(a.last_ns - a.first_ns for a in self.answers) * 1e-9
        if not later or not spent:
            return ONE_TOKEN if self.answers else NONE
        return rate(later / spent, self.paces, "tokens/s", later)

    @cached_property
    def paces(self) -> NDArray[np.float64]:
        """The seconds of each token after the first, in the order of time, without what the longer cache adds."""
        gaps, places, ends = self._each_gap
        if len(gaps) < 3 or not np.ptp(places):
            return gaps[np.argsort(ends, kind="stable")]
        line = places - places.mean()
        slope = float(line @ gaps) / float(line @ line)
        level: NDArray[np.float64] = gaps - slope * line
        return level[np.argsort(ends, kind="stable")]

    @cached_property
    def _each_gap(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Seconds between the tokens of each answer, the place of the later one in it, and when that came."""
        times = [np.asarray(a.got.times_ns, np.int64) for a in self.answers if a.singly]
        if not times:
            return np.empty(0), np.empty(0), np.empty(0, np.int64)
        gaps = np.concatenate([np.diff(each) for each in times]) * 1e-9
        places = np.concatenate([np.arange(1, len(each), dtype=np.float64) for each in times])
        return gaps, places, np.concatenate([each[1:] for each in times])

    def prefill(self) -> Field:
        """Return prompt tokens a second from when the engine has a request to its first token."""
        if not self.answers:
            return NONE
        spent = np.array([a.first_ns - a.issued_ns for a in self.answers]) * 1e-9
        fresh = np.array([a.got.prompt_tokens - (a.got.cached_tokens or 0) for a in self.answers])
        each = spent / np.maximum(fresh, 1) * fresh.mean()
        return rate(float(fresh.sum() / spent.sum()), each, "tokens/s", len(spent))

    def output(self) -> Field:
        """Return the tokens of all answers over the seconds of the window; its interval is that of the throughput."""
        found = throughput(self.rows, self.window)
        return found if isinstance(found, Absent) else replace(found, unit="tokens/s")

    def _itl(self) -> dict[str, Field]:
        found = np.array([a.itl_s for a in self.answers])
        known = found[np.isfinite(found)]
        if len(found) and not len(known):
            return {"itl_p50_s": ONE_TOKEN, "itl_p99_s": ONE_TOKEN}
        return {f"itl_p{100 * q:g}_s": quantile_metric(known, q) for q in (0.5, 0.99)}

    def _gaps(self) -> dict[str, Field]:
        gaps, _, ends = self._each_gap
        if self.answers and not any(a.singly for a in self.answers):
            return {"token_gap_p50_s": UNCOUNTED, "token_gap_p99_s": UNCOUNTED}
        ordered = gaps[np.argsort(ends, kind="stable")]
        return {f"token_gap_p{100 * q:g}_s": quantile_metric(ordered, q) for q in (0.5, 0.99)}

    def _lengths(self) -> dict[str, Field]:
        said = [a.got.cached_tokens for a in self.answers if a.got.cached_tokens is not None]
        return {
            "prompt_tokens": _mean([a.got.prompt_tokens for a in self.answers]),
            "output_tokens": _mean([a.got.output_tokens for a in self.answers]),
            "output_tokens_least": _end([a.got.output_tokens for a in self.answers], min),
            "output_tokens_most": _end([a.got.output_tokens for a in self.answers], max),
            "cached_tokens": _mean(said) if said else UNSTATED,
        }

    def _good(self, limits: Limits) -> dict[str, Field]:
        length = (self.window.stop_ns - self.window.start_ns) * 1e-9
        if limits == Limits() or length <= 0:
            return {}
        due = dict(zip(self.rows.columns["query_id"].tolist(), self.rows.due_ns().tolist(), strict=True))
        ok = self.rows.columns["query_id"][self.rows.columns["status"] == QUERY_OK].tolist()
        kept = sum(_keeps(a, due[n], limits) for n, a in zip(ok, self.answers, strict=True))
        share = kept / len(self.rows) if len(self.rows) else 0.0
        return {
            "goodput_rps": Measured(kept / length, "requests/s", n=len(self.rows)),
            "goodput_share": Measured(share, "share", n=len(self.rows)),
        }


def _keeps(answer: Answer, due_ns: int, limits: Limits) -> bool:
    """Return whether a request kept its limits; an answer of one token has no gaps to be late in."""
    first, last = ((at - due_ns) * 1e-9 for at in (answer.first_ns, answer.last_ns))
    in_time = not limits.ttft_s or first <= limits.ttft_s
    in_time = in_time and not (limits.latency_s and last > limits.latency_s)
    return in_time and not (limits.itl_s and answer.itl_s > limits.itl_s)


def rate(value: float, each_s: NDArray[np.float64], unit: str, n: int) -> Field:
    """Return a rate with the inverted interval of the seconds of each of what it counts.

    No interval where the samples do not allow one, or where the machine ran at several speeds and changed too rarely.
    """
    found: Interval = mean_interval(each_s)
    speeds = states(each_s)
    known = not speeds.several or speeds.known_over(float(each_s.sum()))
    if not (found.reliable and known and found.lo > 0):
        return Measured(value, unit, n=n)
    return Measured(value, unit, value * found.value / found.hi, value * found.value / found.lo, n)


def _mean(values: Sequence[int]) -> Field:
    return Measured(float(np.mean(values)), "tokens", n=len(values)) if values else NONE


def _end(values: Sequence[int], of: Callable[[Sequence[int]], int]) -> Field:
    return Measured(float(of(values)), "tokens", n=len(values)) if values else NONE


def spans(answers: Iterable[tuple[int, Answer]]) -> Spans:
    """Return each answer as its unit, its prefill, and a span for each token after the first."""
    rows: list[tuple[str, int, int, int]] = []
    for number, answer in answers:
        times = answer.got.times_ns
        rows.append((UNIT, number, answer.issued_ns, times[-1]))
        rows.append(("prefill", number, answer.issued_ns, times[0]))
        rows += [("token", number, begin, end) for begin, end in pairwise(times)]
    return Spans.of("phase", rows, (UNIT, "prefill", "token"))
