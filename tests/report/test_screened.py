"""What the short rounds screened out, and what breaks a constraint, in each form of the report."""

import numpy as np
import pytest

from edgescope import report
from edgescope.analysis.cells.objective import wanted
from edgescope.records import QUERY_DTYPES, Queries, Status, Trial, Verification, Window
from making import result

SHORT = {"min_s": 0.4, "max_s": 0.4}


def measured(backend, latency_ns, **keys):
    n = 300
    columns = {name: np.full(n, -1, dtype=kind) for name, kind in QUERY_DTYPES.items()}
    columns |= {"issued_ns": np.arange(n) * latency_ns, "done_ns": (np.arange(n) + 1) * latency_ns}
    columns |= {"status": np.zeros(n, np.int8), "samples": np.ones(n, np.int32)}
    return result(
        Trial(model="m", backend=backend, **keys),
        status=Status.OK,
        verification=Verification(True, "centred_l2", {}, 0.1, "as fp32"),
        window=Window(0, n, 0, n * latency_ns),
        queries=Queries(columns),
        metrics={},
    )


@pytest.fixture
def results():
    found = [measured("torch_eager", 9_000_000), measured("onnxruntime", 3_000_000)]
    found += [measured("torch_eager", 9_000_000, **SHORT), measured("openvino", 4_500_000, **SHORT)]
    return found


@pytest.mark.parametrize("suffix", ["md", "html"])
@pytest.mark.slow
def test_screened_out_variants_are_named_with_their_short_run(results, tmp_path, suffix):
    text = report.write(results, tmp_path / f"r.{suffix}").read_text()
    assert "screened out at 4.5" in text.replace("\\", "")
    assert "after 1 short run" in text.replace("\\", "")
    assert "2× the baseline" not in text  # one pair bounds no ratio


def test_a_broken_constraint_is_struck_out_with_its_figures(results, tmp_path):
    text = report.write(results, tmp_path / "r.md", wanted=wanted("latency", ["p50<=5ms"])).read_text()
    assert "~~torch\\_eager fp32 b1~~" in text and "p50\\<=5ms broken: 9 ms" in text
    assert "**onnxruntime fp32 b1** (pick)" in text
    csv = report.write(results, tmp_path / "r.csv", wanted=wanted("latency", ["p50<=1ms"])).read_text()
    assert csv.count("p50<=1ms broken") == 2
