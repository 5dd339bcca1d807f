"""How well a detector finds anomalies in videos, by the field's protocol and as an operator sees it.

    AUC            area under the frame-level ROC curve: each snippet's score holds for its 16 frames; a video of n
                   frames counts ceil(n / 16) x 16, of which those beyond n are normal (as published labels count)
    PR AUC         area under the frame-level precision-recall curve
    AUC (anomalous)  the same over anomalous videos alone: what is left without the easy normal videos
    false alarms   runs of snippets at or above the threshold that touch no anomaly, per hour of video, at the highest
                   threshold that finds the wanted share of events
    delay          from the begin of a found event to the end of the first snippet that reports it

Intervals draw whole videos anew (anomalous and normal ones apart), because frames of one video are not independent.

How well scores rank positives above negatives (ROC and precision-recall curves, their areas, thresholds) is told from
rows: a score, and how many positive and how many negative samples have it. A snippet's score holds
for all its frames, so a million frames are some ten thousand rows, and drawing videos anew for an interval only changes
the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Measured

Floats = NDArray[np.float64]
FALSE_ALARMS = 60.0
"""False alarms an hour of usual validation video from which a threshold is warned of: one a minute."""
SQUEEZED = 0.01
"""A threshold below this lies where scores of the two kinds are both next to 0: any other scene may exceed it."""


@dataclass(frozen=True)
class Curve:
    """The counts at each threshold, from the highest score down; a sample is positive from its threshold on."""

    thresholds: Floats
    true: Floats
    """Positives at or above each threshold."""
    false: Floats
    """Negatives at or above each threshold."""

    @property
    def tpr(self) -> Floats:
        """Return the share of positives found, from 0 on; nan without positives."""
        return _share(self.true)

    @property
    def fpr(self) -> Floats:
        """Return the share of negatives taken for positives, from 0 on; nan without negatives."""
        return _share(self.false)

    @property
    def precision(self) -> Floats:
        """Return the share of what is taken for positive that is, from 1 on, before anything is."""
        found = self.true + self.false
        return np.concatenate([[1.0], np.divide(self.true, found, out=np.ones_like(found), where=found > 0)])

    @property
    def roc_auc(self) -> float:
        """Return the area under the ROC curve: the chance that a positive has the higher score, ties half."""
        return area(self.fpr, self.tpr)

    @property
    def pr_auc(self) -> float:
        """Return the area under the precision-recall curve by trapezoids, from precision 1 on, as the field does."""
        return area(self.tpr, self.precision)

    @property
    def youden(self) -> float:
        """Return the threshold at which true less false positive rate is largest."""
        return float(self.thresholds[int(np.argmax((self.tpr - self.fpr)[1:]))])


def curve(scores: ArrayLike, positives: ArrayLike, negatives: ArrayLike) -> Curve:
    """Return the curve of rows with these scores and counts; equal scores are one threshold."""
    return Ranked(np.asarray(scores, dtype=np.float64)).curve(
        np.asarray(positives, dtype=np.float64), np.asarray(negatives, dtype=np.float64)
    )


class Ranked:
    """Scores that are sorted once, for many sets of counts."""

    def __init__(self, scores: Floats) -> None:
        if not np.isfinite(scores).all():
            raise ValueError("a score is no number")
        self.order = np.argsort(-scores, kind="stable")
        ordered = scores[self.order]
        self.last = (
            np.flatnonzero(np.append(np.diff(ordered) != 0, True)) if len(ordered) else np.zeros(0, int)
        )
        self.thresholds: Floats = ordered[self.last]

    def curve(self, positives: Floats, negatives: Floats) -> Curve:
        """Return the curve with these counts per row."""
        true, false = (np.cumsum(counts[self.order])[self.last] for counts in (positives, negatives))
        return Curve(self.thresholds, true, false)


def area(x: ArrayLike, y: ArrayLike) -> float:
    """Return the area under points in order of x, by trapezoids."""
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return float(np.sum(np.diff(across) * (up[1:] + up[:-1]) / 2))


def _share(counts: Floats) -> Floats:
    whole = counts[-1] if len(counts) and counts[-1] > 0 else float("nan")
    return np.concatenate([[0.0], counts]) / whole


# -- of a detector -------------------------------------------------------------------------------------------


Intervals = Sequence[tuple[int, int]]
DRAWS, LEVEL = 1000, 0.95
RECALL = 0.8
FEWEST = 3
"""Videos that an interval needs: one drawn anew is always itself."""


@dataclass(frozen=True)
class ScoredVideo:
    """The scores of one video and what is known of it."""

    name: str
    category: str
    """The kind of anomaly; 'normal' for none."""
    scores: NDArray[np.float32]
    """One per snippet."""
    frames: int
    intervals: Intervals
    """Frames [start, end) that are anomalous; frames beyond the video's end are left out."""
    fps: float | None = 30.0
    """Frames per second; None if unknown: then there are no times."""
    snippet: int = 16

    @property
    def anomalous(self) -> bool:
        """Return whether it holds an anomaly."""
        return self.category != "normal"

    @property
    def positives(self) -> NDArray[np.int64]:
        """Return the number of anomalous frames in each snippet."""
        labels = frame_labels(self.frames, self.intervals, self.snippet)
        counts: NDArray[np.int64] = labels.reshape(-1, self.snippet).sum(axis=1)
        return counts


def false_alarms_per_hour(videos: Sequence[ScoredVideo], threshold: float) -> float | None:
    """Return how often the scores of usual videos rise to a threshold, an hour; None if no length in time is known."""
    count, seconds = 0, 0.0
    for video in videos:
        if video.anomalous or not video.fps:
            continue
        above = np.concatenate([[False], video.scores >= threshold])
        count += int(np.sum(above[1:] & ~above[:-1]))
        seconds += video.frames / video.fps
    return 3600 * count / seconds if seconds else None


def weakness(threshold: float, false: float | None) -> str:
    """Return why alarms at a threshold would mean little, '' if nothing speaks against it."""
    if threshold < SQUEEZED:
        return f"it lies below {SQUEEZED:g}: the scores of both kinds are squeezed towards 0"
    if false is not None and false > FALSE_ALARMS:
        return f"usual validation videos give {false:.0f} false alarms an hour at it; {FALSE_ALARMS:.0f} are too many"
    return ""


def frame_labels(frames: int, intervals: Intervals, snippet: int = 16) -> NDArray[np.bool_]:
    """Return a label per frame, of ceil(frames / snippet) x snippet: those beyond the video are normal."""
    labels = np.zeros(-(-frames // snippet) * snippet, dtype=bool)
    for start, end in intervals:
        labels[max(start, 0) : min(end, frames)] = True
    return labels


@dataclass(frozen=True)
class Evaluation:
    """What was found of a detector on a set of videos."""

    figures: Mapping[str, Field]
    """auc, pr_auc, auc_anomalous, false_alarms_per_hour, detection_delay_s, event_recall, threshold."""
    by_category: Mapping[str, Field]
    """Category -> AUC of its videos and all normal ones."""
    roc: Curve
    videos: int
    frames: int
    positive_frames: int


def evaluate(
    videos: Sequence[ScoredVideo], *, recall: float = RECALL, draws: int = DRAWS, seed: int = 0
) -> Evaluation:
    """Return the figures of a detector; UsageError if only one class is among the frames."""
    _two_classes(videos)
    rows = _Rows(videos)
    some = [video for video in videos if video.anomalous]
    categories = sorted({video.category for video in some})
    figures: dict[str, Field] = {
        "auc": rows.interval(lambda c: c.roc_auc, draws, seed),
        "pr_auc": rows.interval(lambda c: c.pr_auc, draws, seed),
        "auc_anomalous": _of(some, draws, seed),
        **alarms(videos, recall),
    }
    normal = [video for video in videos if not video.anomalous]
    return Evaluation(
        figures=figures,
        by_category={c: _of([v for v in some if v.category == c] + normal, draws, seed) for c in categories},
        roc=rows.ranked.curve(rows.positives, rows.negatives),
        videos=len(videos),
        frames=int(rows.positives.sum() + rows.negatives.sum()),
        positive_frames=int(rows.positives.sum()),
    )


def telling(videos: Sequence[ScoredVideo], most: int) -> list[ScoredVideo]:
    """Return the videos that show what goes wrong: events that score lowest, then normal ones that score highest.

    Of both as many as fit, two events for each normal one; what one kind lacks the other fills.
    """
    some = sorted((v for v in videos if _events(v)), key=_faintest)
    calm = sorted((v for v in videos if not v.anomalous), key=lambda v: -float(v.scores.max(initial=0.0)))
    kept = min(len(calm), max(most // 3, most - len(some)))
    return [*some[: most - kept], *calm[:kept]]


def _faintest(video: ScoredVideo) -> float:
    """Return the peak of the event of a video that has the lowest one."""
    return min(float(_touching(video, start, end).max()) for start, end in _events(video))


@dataclass(frozen=True)
class Difference:
    """How much larger one detector's AUC is than another's on the same videos."""

    gain: Measured
    """First less second, with its interval over videos."""
    p: float
    """Two-sided: how often a set of videos drawn anew turns the sign, doubled; 1 for fewer than FEWEST videos."""

    @property
    def sure(self) -> bool:
        """Return whether the interval leaves out 0."""
        return (
            self.gain.lo is not None and self.gain.hi is not None and (self.gain.lo > 0 or self.gain.hi < 0)
        )


def compared(
    first: Sequence[ScoredVideo], second: Sequence[ScoredVideo], *, draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Return the paired difference of two detectors; each draw takes the same videos for both.

    UsageError if they were not scored on the same videos.
    """
    if [v.name for v in first] != [v.name for v in second]:
        raise UsageError(
            "E-ANOMALY-5",
            "the two detectors were not scored on the same videos",
            evidence=f"{len(first)} and {len(second)} videos",
            effect="A paired test needs the same videos",
            fix="edgescope anomaly evaluate A.pt FEATURES_A --against B.pt FEATURES_B, extracted from one set",
        )
    _two_classes(first)
    a, b = _Rows(first), _Rows(second)

    def gain(times: Floats | None = None) -> float:
        return a.curve(times).roc_auc - b.curve(times).roc_auc

    if len(first) < FEWEST:
        return Difference(Measured(gain(), "1", n=len(first)), 1.0)
    drawn = np.array([gain(times) for times in a.drawn(draws, seed)])
    lo, hi = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    turned = min(float(np.mean(drawn <= 0)), float(np.mean(drawn >= 0)))
    return Difference(
        Measured(gain(), "1", float(lo), float(hi), len(first)), min(1.0, max(2 * turned, 1 / draws))
    )


def alarms(videos: Sequence[ScoredVideo], recall: float) -> dict[str, Field]:
    """Return false alarms per hour, delay, and the threshold, at the highest one that finds `recall` of the events."""
    events = [(video, start, end) for video in videos for start, end in _events(video)]
    if not events:
        missing = Absent("no event lies within a video")
        return dict.fromkeys(
            ("false_alarms_per_hour", "detection_delay_s", "event_recall", "threshold"), missing
        )
    peaks = np.array([_touching(video, start, end).max() for video, start, end in events])
    threshold = float(np.sort(peaks)[::-1][int(np.ceil(recall * len(peaks))) - 1])
    found = int((peaks >= threshold).sum())
    return {
        **_times(videos, events, threshold),
        "event_recall": Measured(found / len(events), "share", n=len(events)),
        "threshold": Measured(threshold, "1"),
    }


def _times(
    videos: Sequence[ScoredVideo], events: Sequence[tuple[ScoredVideo, int, int]], threshold: float
) -> dict[str, Field]:
    """Return false alarms per hour and the median delay; both are absent if a video's frame rate is unknown."""
    unknown = [video.name for video in videos if video.fps is None]
    if unknown:
        missing = Absent(f"the frame rate of {len(unknown)} videos is not known, first {unknown[0]}")
        return dict.fromkeys(("false_alarms_per_hour", "detection_delay_s"), missing)
    hours = sum(video.frames / video.fps for video in videos if video.fps) / 3600
    false = sum(_false_alarms(video, threshold) for video in videos)
    delays = [
        frames / video.fps
        for video, start, end in events
        if video.fps and (frames := _delay(video, start, end, threshold)) is not None
    ]
    return {
        "false_alarms_per_hour": Measured(false / hours, "1/h", n=false),
        "detection_delay_s": Measured(float(np.median(delays)), "s", n=len(delays)),
    }


def _events(video: ScoredVideo) -> list[tuple[int, int]]:
    return [(max(s, 0), min(e, video.frames)) for s, e in video.intervals if max(s, 0) < min(e, video.frames)]


def _touching(video: ScoredVideo, start: int, end: int) -> NDArray[np.float32]:
    """Return the scores of the snippets that an event touches."""
    return video.scores[start // video.snippet : -(-end // video.snippet)]


def _delay(video: ScoredVideo, start: int, end: int, threshold: float) -> int | None:
    """Return the frames from an event's begin to the end of the first snippet that reports it; None if none does."""
    found = np.flatnonzero(_touching(video, start, end) >= threshold)
    if not len(found):
        return None
    reported = (start // video.snippet + int(found[0]) + 1) * video.snippet
    return min(reported, video.frames) - start


def _false_alarms(video: ScoredVideo, threshold: float) -> int:
    """Return the number of runs at or above the threshold that touch no anomalous frame."""
    above = np.concatenate([[False], video.scores >= threshold, [False]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(above))
    positives = video.positives
    return sum(not positives[a:b].any() for a, b in zip(edges[::2], edges[1::2], strict=True))


class _Rows:
    """One row per snippet of all videos: its score, its positive and negative frames, its video."""

    def __init__(self, videos: Sequence[ScoredVideo]) -> None:
        self.videos = videos
        for video in videos:
            _lengths_agree(video)
        positives = [video.positives for video in videos]
        self.positives = np.concatenate(positives).astype(np.float64)
        self.negatives = np.concatenate(
            [v.snippet - p for v, p in zip(videos, positives, strict=True)]
        ).astype(np.float64)
        self.ranked = Ranked(np.concatenate([video.scores for video in videos]).astype(np.float64))
        bounds = np.cumsum([0, *(len(p) for p in positives)])
        self.of = np.repeat(np.arange(len(videos)), [b - a for a, b in pairwise(bounds.tolist())])

    def curve(self, times: Floats | None = None) -> Curve:
        """Return the curve with each video counted so many times."""
        weight = 1.0 if times is None else times[self.of]
        return self.ranked.curve(self.positives * weight, self.negatives * weight)

    def drawn(self, draws: int, seed: int) -> list[Floats]:
        """Return how often each video is drawn, in each draw: as many of either kind as there are."""
        rng = np.random.default_rng(seed)
        anomalous = np.array([video.anomalous for video in self.videos])
        found = []
        for _ in range(draws):
            times = np.zeros(len(anomalous))
            for kind in (True, False):
                mine = np.flatnonzero(anomalous == kind)
                if len(mine):
                    np.add.at(times, rng.choice(mine, len(mine)), 1)
            found.append(times)
        return found

    def interval(self, value: Callable[[Curve], float], draws: int, seed: int) -> Measured:
        """Return a figure with its interval over videos."""
        drawn = np.array([value(self.curve(times)) for times in self.drawn(draws, seed)])
        drawn = drawn[np.isfinite(drawn)]
        value_here, n = value(self.curve()), len(self.videos)
        if len(drawn) < 0.9 * draws or n < FEWEST:
            return Measured(value_here, "1", n=n)
        lo, hi = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Measured(value_here, "1", float(lo), float(hi), n)


def _of(videos: Sequence[ScoredVideo], draws: int, seed: int) -> Field:
    counts = [(int(v.positives.sum()), len(v.positives) * v.snippet) for v in videos]
    positive, whole = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if not 0 < positive < whole:
        return Absent("its frames are of one class only")
    return _Rows(videos).interval(lambda c: c.roc_auc, draws, seed)


def _two_classes(videos: Sequence[ScoredVideo]) -> None:
    positive = sum(int(video.positives.sum()) for video in videos)
    whole = sum(len(video.positives) * video.snippet for video in videos)
    if not 0 < positive < whole:
        raise UsageError(
            "E-ANOMALY-6",
            "the videos hold frames of one class only",
            evidence=f"{positive} of {whole} frames are anomalous",
            effect="Nothing can be told apart",
            fix="add videos with frame labels of the other class to the test split",
        )


def _lengths_agree(video: ScoredVideo) -> None:
    if len(video.scores) != -(-video.frames // video.snippet):
        raise UsageError(
            "E-ANOMALY-7",
            f"{video.name} has {len(video.scores)} scores and {video.frames} frames",
            evidence=f"{video.frames} frames are {-(-video.frames // video.snippet)} snippets of {video.snippet}",
            effect="Labels would be held beside other frames",
            fix="extract this video again, or mend its row in the labels",
        )
