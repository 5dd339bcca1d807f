"""Message codes: one code means one thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import catalogue

SOURCE = Path(__file__).parents[2] / "src" / "edgescope"
CODE = re.compile(r'"([EW]-[A-Z0-9]+-\d+)"')
#: Files that several engines use stand for themselves.
BY_THEMSELVES = ("tensorrt/engine_file", "tensorrt/torch_engine")
#: The wings that bring an engine.
ENGINES = ("litert", "openvino", "tensorrt")
#: Codes of what every engine checks alike: an option, a precision, an engine for another board, CUDA.
SHARED = {"E-OPT-2", "E-OPT-3", "E-OPT-4", "E-PREC-1", "E-PREC-3", "E-ENG-1"}


def family(file: str) -> str:
    """Return the engine that a file below backends/, or below a wing, belongs to."""
    folder, _, name = file.rpartition("/")
    if file in BY_THEMSELVES or folder == "pytorch":
        return file
    return "tensorrt/ort" if folder == "tensorrt" and name.startswith("ort_") else folder or file


def users() -> dict[str, set[str]]:
    """Return {code: families of modules that say it}."""
    found = defaultdict(set)
    folders = [SOURCE / "backends", *(SOURCE / "wings" / name for name in ENGINES)]
    files = {
        str(path.relative_to(folder if folder.name == "backends" else folder.parent).with_suffix("")): path
        for folder in folders
        for path in folder.rglob("*.py")
    }
    for file, path in (files | {"for_precision": SOURCE / "artifacts/for_precision.py"}).items():
        for code in CODE.findall(path.read_text()):
            found[code].add(family(file))
    return found


def test_a_code_belongs_to_one_engine():
    assert {code: where for code, where in users().items() if len(where) > 1 and code not in SHARED} == {}


def test_the_list_of_shared_codes_holds_nothing_else():
    found = users()
    assert {code for code in SHARED if len(found[code]) < 2} == set()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("tensorrt/trtexec/log", "tensorrt/trtexec"),
        ("tensorrt/execution", "tensorrt"),
        ("tensorrt/ort_provider", "tensorrt/ort"),
        ("openvino/backend", "openvino"),
        ("cudart", "cudart"),
    ],
)
def test_files_of_one_engine_are_one_family(file, name):
    assert family(file) == name


def test_the_catalogue_reads_texts_from_calls_and_variables():
    code = """def f(n):
    text = f"{n} of 3"
    return [Finding("W-X-1", text), message("E-X-2", "no " + "disk", effect=f"{n} lost", fix=n), ("E-X-2", "E-Y-")]"""
    assert sorted(catalogue.said(ast.parse(code))) == [
        ("E-X-2", "no disk", "... lost", ""),
        ("W-X-1", "... of 3", "", ""),
    ]


def test_the_catalogue_reads_findings_and_usual_codes_and_leaves_out_beginnings():
    code = """def f(provider, code="E-X-1"):
    message(code, f"no {provider}", fix=f"{provider}")
    return Finding("W-X-2", "hot", "cool it", "95 C") if code.startswith("W-X") else None"""
    assert sorted(catalogue.said(ast.parse(code))) == [
        ("E-X-1", "no ...", "", ""),
        ("W-X-2", "hot", "", "cool it"),
    ]
