"""Watch a stream for anomalies and return what was seen: `edgescope.watch("film.mp4", detector="detector.pt")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgescope.errors import UsageError
from edgescope.records import Scalar, Trial
from edgescope.registry import need
from edgescope.wings.video import verb as video


def chain(
    source: str,
    *,
    detector: str | Path = "",
    features: str = video.FEATURES,
    rule: Any = "",
    options: Mapping[str, Scalar] = {},
    tell: Callable[[str], None] = lambda what: None,
    **how: Any,
) -> Trial:
    """Return the trial whose pipeline watches `source` with a file of `edgescope anomaly train`.

    The file says its networks, how frames are prepared, and its threshold. Without one, `features` and `head` are
    networks of the zoo. `tell` is called with the score that raises an alarm, and where that comes from. Further
    arguments are those of edgescope.wings.video.verb.chain.
    """
    own: float | None = None
    if detector:
        named = need("edgescope.wings.anomaly.detector:named", "a detector", "pip install 'edgescope[torch]'")
        made = named(Path(detector))
        given = {**options, **({"features": features} if features != video.FEATURES else {})}
        for option, mine in {**made.options, "features": made.features.partition("@")[0]}.items():
            if given.get(option, mine) != mine:
                raise UsageError(
                    "E-ANOMALY-19",
                    f"{detector} was trained with {option}={mine}, not {given[option]}",
                    effect="Its scores would mean nothing",
                    fix=f"leave {option} out: the detector says it",
                )
        own, features, options = made.threshold, made.features, {**made.options, **options}
        how["head"] = made.head
    rule, origin = video.decided(rule, own, detector=bool(detector))  # a mistake in it is found first
    tell(f"alarm at a score of {rule.on:.3g} ({origin})")
    return video.chain(source, features=features, rule=rule, options=options, **how)


def watch(source: str, **how: Any) -> video.Watched:
    """Watch a stream until it ends, or for `seconds`; return its alarms and what was dropped or failed.

    `detector` is a file of `edgescope anomaly train`, `rule` says when an alarm is raised
    (`on=0.6,off=0.4,min_s=1,cooldown_s=10,smooth=3`). Further arguments are those of `chain` and of
    edgescope.wings.video.verb.watch: sinks, seconds, tell, scored.
    """
    return video.watch(source, made=chain, **how)
