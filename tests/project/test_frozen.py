"""What was found out once is shared between tables, pages, plots and threads: no record may be changed in place."""

import ast
from pathlib import Path

import edgescope

ROOT = Path(edgescope.__file__).parent
PACKAGES = sorted({path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")})
COUNTS_UP = {
    "bench.cache_misses.CacheMisses",
    *(
        "wings.anomaly.preparation.Read",
        "wings.anomaly.extract._Job",
        "artifacts.mixed_precision_onnx.Spread",
    ),
    *(
        "wings.trace.program.Seen",
        "wings.datasets._Annotations",
        "wings.doctor.report.WatchedSource",
        "wings.studies.anomaly_detection.study.Cell",
    ),
    *(
        "wings.studies.video_ladder.climb.Climbed",
        "wings.studies.video_ladder.climb.Rung",
        "wings.studies.sweep_plot.Panel",
    ),
    *("wings.remote.board.Line", "stats.sequential.StopRule", "wings.trace.imported.ImportedFile"),
    *(
        "wings.generation.arrivals.Arrivals",
        "wings.generation.http_stream.Connection",
        "wings.generation.http_stream.Head",
    ),
    *(
        "wings.video.flow.Counts",
        "frames.Frame",
        "frames.Item",
        "wings.video.session.Counts",
    ),
}
"""Those that are filled while something runs."""
NO_RECORDS = {"wings.video.sources.live.Connection"}
"""What has fields and is no dataclass, since its members set them."""


def classes(package: str) -> dict[str, ast.ClassDef]:
    """Every class of a package by its dotted name: read, not imported, since some need what is not installed."""
    paths = [*ROOT.glob(f"{package}.py"), *sorted((ROOT / package).rglob("*.py"))]
    return {
        ".".join((*path.relative_to(ROOT).with_suffix("").parts, node.name)): node
        for path in paths
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }


def dataclass_of(made: ast.ClassDef) -> str:
    """The decorator that makes it a dataclass, as it is written, or ''."""
    return next((word for word in map(ast.unparse, made.decorator_list) if word.startswith("dataclass")), "")


def has_fields_alone(made: ast.ClassDef) -> bool:
    """Whether nothing but a dataclass's decorator could give such a class its __init__."""
    fields = [ast.unparse(node.annotation) for node in made.body if isinstance(node, ast.AnnAssign)]
    own = {node.name for node in made.body if isinstance(node, ast.FunctionDef)}
    return not made.bases and "__init__" not in own and any("ClassVar" not in field for field in fields)


def test_every_record_is_a_dataclass_that_is_frozen():
    found = {name: made for package in PACKAGES for name, made in classes(package).items()}
    wings = {name.split(".")[1] for name in found if name.startswith("wings.")}
    named = {n for n in COUNTS_UP | NO_RECORDS if not n.startswith("wings.") or n.split(".")[1] in wings}
    assert named <= set(found)
    for name, made in found.items():
        word = dataclass_of(made)
        assert word or name in NO_RECORDS or not has_fields_alone(made), name
        assert ("frozen=True" in word) is (bool(word) and name not in COUNTS_UP), name
