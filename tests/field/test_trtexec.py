"""trtexec's JSON files of all versions: times until 8.2 have other columns; runs are appended to one file."""

import json

import pytest

from edgescope.cli.main import main

OLD = {"startEnqMs": 0.4, "endEnqMs": 0.5, "startInMs": 0.1, "endInMs": 0.3, "startComputeMs": 0.6}
OLD |= {"endComputeMs": 2.6, "startOutMs": 2.6, "endOutMs": 2.7, "inMs": 0.2, "latencyMs": 2.3}
NAMES = {"startInMs": "startH2dMs", "endInMs": "endH2dMs", "startOutMs": "startD2hMs", "endOutMs": "endD2hMs"}
LAYERS = [{"count": 10}, {"name": "a", "timeMs": 1, "averageMs": 0.1, "percentage": 100}]


def page(capsys, path, rc=0):
    assert main(["trace", str(path), "--json"]) == rc
    (one,) = json.loads(capsys.readouterr().out)["traces"].values()
    return one, [n["code"] for n in one["notes"]]


def later(row, ms):
    return {k: round(v + ms, 3) if k.startswith(("start", "end")) else v for k, v in row.items()}


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("arrays", [1, 2])
def test_times_of_both_generations_and_of_runs_in_one_file(capsys, tmp_path, new, arrays):
    rows = [{NAMES.get(k, k) if new else k: v for k, v in later(OLD, ms).items()} for ms in (0, 3)]
    (tmp_path / "t.json").write_text((json.dumps(rows) + "\n") * arrays)
    one, codes = page(capsys, tmp_path / "t.json")
    assert {c["name"]: c["total_ns"] for c in one["copies"]} == {
        "H2D": 400_000 * arrays,
        "D2H": 200_000 * arrays,
    }
    assert one["kernels"][0]["total_ns"] == 4_000_000 * arrays and one["inferences"]["count"] == 2 * arrays
    assert one["gpus"][0]["span_ns"] == (5_600_000 if arrays == 1 else 5_600_000 * 2 + 100_000)
    assert codes == ["I-PROF-7"] * (arrays - 1) + ["I-PROF-3"]


def test_a_time_that_is_missing_or_no_number_is_missing_and_not_0(capsys, tmp_path):
    rows = [
        OLD,
        {k: v for k, v in later(OLD, 3).items() if k != "endOutMs"},
        later(OLD, 6) | {"startInMs": "x"},
    ]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    one, codes = page(capsys, tmp_path / "t.json", rc=1)
    assert {c["name"]: c["count"] for c in one["copies"]} == {"H2D": 2, "D2H": 2}
    assert one["inferences"]["count"] == 1 and codes.count("W-PROF-16") == 3


def test_profiles_that_were_appended_are_all_read(capsys, tmp_path):
    second = [LAYERS[0], LAYERS[1] | {"averageMs": 0.2}]
    (tmp_path / "p.json").write_text("\n".join(map(json.dumps, (LAYERS, second))))
    one, codes = page(capsys, tmp_path / "p.json")
    (layer,) = one["operators"]
    assert (layer["count"], layer["total_ns"], layer["spread_ns"]) == (2, 300_000, None)
    assert one["facts"]["inferences"] == 20 and codes == ["I-PROF-7", "I-PROF-2"]


def test_a_damaged_row_costs_itself(capsys, tmp_path):
    text = json.dumps([*LAYERS, {"name": "b", "averageMs": 0.3}, {"name": "c", "averageMs": 0.4}])
    (tmp_path / "p.json").write_text(text.replace('"b",', '"b'))
    one, codes = page(capsys, tmp_path / "p.json", rc=1)
    assert [o["name"] for o in one["operators"]] == ["c", "a"] and codes[0] == "W-PROF-3"


@pytest.mark.parametrize(
    ("unit", "value", "ns"),
    [
        ("(ms)", "0.196", 196_000),
        ("(\N{MICRO SIGN}s)", "196", 196_000),
        ("(us)", "196.5", 196_500),
        ("(ms)", "0,196", 196_000),
    ],
)
def test_openvinos_counters_in_the_unit_of_their_heading(capsys, tmp_path, unit, value, ns):
    head = f"layerName;execStatus;layerType;execType;realTime {unit};cpuTime {unit}\n"
    rows = f"conv;EXECUTED;Convolution;x;{value};0\nrelu;EXECUTED;Relu;x;soon;0\n"
    (tmp_path / "c.csv").write_text(head + rows, encoding="utf-8")
    one, codes = page(capsys, tmp_path / "c.csv", rc=1)
    assert [o["total_ns"] for o in one["operators"]] == [ns] and "W-PROF-16" in codes


def test_counters_in_a_unit_that_is_none_of_time_are_refused(capsys, tmp_path):
    (tmp_path / "c.csv").write_text("layerName;execStatus;layerType;realTime (cycles)\nconv;EXECUTED;C;5\n")
    assert main(["trace", str(tmp_path / "c.csv")]) == 2
    assert capsys.readouterr().err.startswith("E-PROF-1")
