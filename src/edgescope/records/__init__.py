"""The two records everything revolves around: a Trial (what we ask) and a Result (what happened).

    Trial  = model x backend x precision x batch x shapes x workload x scenario x concurrency x mode
             x options, io, seed, replicate
    Result = Trial + machine + queries + readings + spans + status + verdict

Both are frozen and versioned. A Trial's id is the hash of every field that differs from its default, so two different
questions never share a name, and a field that is added later changes no name.
A value that was not measured is `Absent(reason)`: never 0, never a guess.
"""

from edgescope.records.answers import Absent, Answer, Field, Json, Measured, Scalar, digest, frame
from edgescope.records.result import (
    Alternation,
    Effective,
    GateOutcome,
    Machine,
    Meter,
    ModelInfo,
    Result,
    Results,
    Status,
    Trust,
    Turn,
    Verdict,
    Verification,
    Worker,
)
from edgescope.records.rows import (
    CLOCK_MARK,
    MARK,
    QUERY_DROPPED,
    QUERY_DTYPES,
    QUERY_END,
    QUERY_ERROR,
    QUERY_OK,
    SPAN_DTYPES,
    SPAN_KINDS,
    SPAN_LATER,
    UNIT,
    Channel,
    Idle,
    Marks,
    Queries,
    Readings,
    Spans,
    Trace,
    Window,
    mark_column,
)
from edgescope.records.trial import (
    IO_KINDS,
    PRECISIONS,
    ROLES,
    SHARING,
    TABLES,
    Place,
    Role,
    Trial,
    colocated_with,
)

SCHEMA_VERSION = 2

__all__ = [
    "CLOCK_MARK",
    "IO_KINDS",
    "MARK",
    "PRECISIONS",
    "QUERY_DROPPED",
    "QUERY_DTYPES",
    "QUERY_END",
    "QUERY_ERROR",
    "QUERY_OK",
    "ROLES",
    "SCHEMA_VERSION",
    "SHARING",
    "SPAN_DTYPES",
    "SPAN_KINDS",
    "SPAN_LATER",
    "TABLES",
    "UNIT",
    "Absent",
    "Alternation",
    "Answer",
    "Channel",
    "Effective",
    "Field",
    "GateOutcome",
    "Idle",
    "Json",
    "Machine",
    "Marks",
    "Measured",
    "Meter",
    "ModelInfo",
    "Place",
    "Queries",
    "Readings",
    "Result",
    "Results",
    "Role",
    "Scalar",
    "Spans",
    "Status",
    "Trace",
    "Trial",
    "Trust",
    "Turn",
    "Verdict",
    "Verification",
    "Window",
    "Worker",
    "colocated_with",
    "digest",
    "frame",
    "mark_column",
]
