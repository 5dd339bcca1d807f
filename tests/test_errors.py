"""Message codes: one code means one thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import catalogue

BACKENDS = Path(__file__).parents[1] / "src" / "edgescope" / "backends"
CODE = re.compile(r'"([EW]-[A-Z0-9]+-\d+)"')
#: Engine of a file -> how its name begins; a file that several engines use stands for itself.
FAMILIES = {
    "trtexec": ("trtexec", "_trtexec_"),
    "tensorrt": ("tensorrt", "_trt_"),
    "onnxruntime": ("onnxruntime", "_ort_cuda"),
    "ort_tensorrt": ("ort_tensorrt", "_ort_trt_"),
}
#: Codes of what every engine checks alike: an option, a precision, an engine for another board, CUDA.
SHARED = {"E-OPT-2", "E-OPT-3", "E-OPT-4", "E-PREC-1", "E-PREC-3", "E-ENG-1"}


def family(stem: str) -> str:
    return next((name for name, begins in FAMILIES.items() if stem.startswith(begins)), stem)


def users() -> dict[str, set[str]]:
    """Return {code: families of modules that say it}."""
    found = defaultdict(set)
    for path in BACKENDS.glob("*.py"):
        for code in CODE.findall(path.read_text()):
            found[code].add(family(path.stem))
    return found


def test_a_code_belongs_to_one_engine():
    assert {code: where for code, where in users().items() if len(where) > 1 and code not in SHARED} == {}


def test_the_list_of_shared_codes_holds_nothing_else():
    found = users()
    assert {code for code in SHARED if len(found[code]) < 2} == set()


@pytest.mark.parametrize(
    ("stem", "name"), [("_trtexec_log", "trtexec"), ("_trt_io", "tensorrt"), ("litert", "litert")]
)
def test_files_of_one_engine_are_one_family(stem, name):
    assert family(stem) == name


def test_the_page_of_messages_is_that_of_the_source():
    stored = (Path(__file__).parents[1] / "docs" / "messages.md").read_text()
    assert stored == catalogue.page(), "run: python tests/catalogue.py docs/messages.md"


def test_the_catalogue_reads_texts_from_calls_and_variables():
    code = 'def f(n):\n    text = f"{n} of 3"\n    return [Finding("W-X-1", text), message("E-X-2", "no " + "disk")]'
    assert sorted(catalogue.said(ast.parse(code))) == [("E-X-2", "no disk"), ("W-X-1", "... of 3")]
