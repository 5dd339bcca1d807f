"""What was found out once is shared between tables, pages, plots and threads: no record may be changed in place."""

import ast
from pathlib import Path

import pytest

import edgescope

ROOT = Path(edgescope.__file__).parent
PACKAGES = sorted({path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")})
COUNTS_UP = {
    *("anomaly.decode.Read", "anomaly.extract._Job", "artifacts.mixed_precision_onnx.Spread"),
    *(
        "bench.program.Seen",
        "data.coco._Joined",
        "doctor.probe.Opened",
        "papers.anomaly_detection.chain.Cell",
    ),
    *("papers.video_ladder.climb.Climbed", "papers.video_ladder.climb.Rung", "plots.panels.Panel"),
    *("remote.board.Line", "stats.sequential.StopRule", "tracing.importers.base.Collected"),
    *("video.flow.Counts", "video.frame.Frame", "video.frame.Item", "watching.session.Counts"),
}
"""Those that are filled while something runs."""
NO_RECORDS = {"video.sources.live.Connection"}
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


@pytest.mark.parametrize("package", PACKAGES)
def test_every_record_is_a_dataclass_that_is_frozen(package):
    found = classes(package)
    assert {n for n in COUNTS_UP | NO_RECORDS if n.startswith(f"{package}.")} <= set(found)
    for name, made in found.items():
        word = dataclass_of(made)
        assert word or name in NO_RECORDS or not has_fields_alone(made), name
        assert ("frozen=True" in word) is (bool(word) and name not in COUNTS_UP), name
