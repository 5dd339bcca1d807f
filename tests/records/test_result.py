"""What a Result says of itself: its figures, its lines, its row, and what its model and its gate were."""

from dataclasses import replace

import pytest

from edgescope.errors import Message, UnsupportedError, UsageError
from edgescope.records import (
    Absent,
    Effective,
    Measured,
    ModelInfo,
    Result,
    Results,
    Status,
    Trial,
    Verification,
    Worker,
)
from edgescope.records.answers import Answer, figure_text, frame, plain
from making import MACHINE, result

TRIAL = Trial(model="dir/a.onnx#0123", backend="onnxruntime")
P50 = Measured(0.00512345, "s", 0.005, 0.0052, 100)


@pytest.mark.parametrize(
    ("method", "found"),
    [
        ("", 0.7),
        ("box_agreement", 0.7),
        ("rank", 0.9),
        ("accuracy", 0.7),
        ("nothing", "not judged by nothing"),
    ],
)
def test_the_figure_of_a_gate_is_that_of_its_measure_or_of_another_method(method, found):
    fields = {"accuracy": Measured(0.7, "share"), "rank": Measured(0.9, "share")}
    figure = Verification(True, "box_agreement", fields, 0.5, "").figure(method)
    assert (figure.reason if isinstance(figure, Absent) else figure.value) == found


def test_a_figure_under_the_methods_own_name_comes_before_that_of_the_measure():
    fields = {"accuracy": Measured(0.7, "share"), "top1": Measured(0.6, "share")}
    assert Verification(True, "top1", fields, 0.5, "").figure().value == 0.6


@pytest.mark.parametrize(
    ("trained", "task", "said"),
    [
        (True, "classify", "trained weights"),
        (True, "unknown", "weights not known"),
        (False, "classify", "untrained weights"),
        (False, "unknown", "weights not known"),
    ],
)
def test_weights_are_called_by_what_is_known_of_them(trained, task, said):
    assert ModelInfo("m", task, trained, "", "").weights == said


def test_a_file_that_runs_as_it_is_bears_the_precision_that_ran():
    as_is = Trial(model="a.onnx", precision="as_is", batch=2)
    ran = Effective("cpu", "fp16")
    assert result(as_is, effective=ran).label == "onnxruntime fp16 b2"
    assert result(as_is, effective=None).label == "onnxruntime as_is b2"
    assert result(TRIAL, effective=ran).label == "onnxruntime fp32 b1"


def test_a_value_is_told_or_why_there_is_none():
    found = result(TRIAL, metrics={"latency_p50_s": P50, "power_w": Absent("no meter")})
    assert found.value("latency_p50_s") == 0.00512345
    with pytest.raises(UnsupportedError) as unmeasured:
        found.value("power_w")
    assert unmeasured.value.message.code == "E-VALUE-1" and unmeasured.value.message.evidence == "no meter"
    with pytest.raises(UsageError) as misspelt:
        found.value("latency_p5_s")
    assert misspelt.value.message.code == "E-VALUE-2" and "latency_p50_s" in misspelt.value.message.fix
    with pytest.raises(UsageError) as unknown:
        found.value("zzzzzz")
    assert (unknown.value.message.fix, unknown.value.message.evidence) == (
        "",
        "it has latency_p50_s, power_w",
    )
    failed = result(TRIAL, metrics={}, status=Status.OOM, reason=Message("E-MEM-1", "full"))
    with pytest.raises(UsageError) as why:
        failed.value("power_w")
    assert why.value.message.evidence == str(Message("E-MEM-1", "full"))


def test_a_result_prints_its_status_and_the_main_figures():
    metrics = {"power_w": Absent("no meter"), "latency_p50_s": P50, "latency_p90_s": P50}
    found = result(TRIAL, id_="x-1", metrics=metrics)
    head, status, *figures = found.lines()
    assert head == "Result x-1: dir/a.onnx onnxruntime fp32 b1"
    assert status == f"  ok, {found.verdict.trust.value}"
    assert figures == ["  latency_p50_s 0.005123 s [0.005, 0.0052]", "  power_w n/a: no meter"]
    assert repr(found) == "\n".join(found.lines())


@pytest.mark.parametrize(
    ("keys", "trusted"),
    [
        ({"queries": None, "metrics": {}}, False),
        ({"metrics": {}}, True),
        ({"queries": None, "metrics": {"latency_p50_s": P50}}, True),
    ],
)
def test_trust_is_told_where_anything_was_measured(keys, trusted):
    found = result(TRIAL, status=Status.CRASHED, reason=Message("E-RUN-2", "gone"), **keys)
    trust = f", {found.verdict.trust.value}" if trusted else ""
    assert [*found.lines()][1] == f"  crashed{trust}: E-RUN-2: gone."


def test_a_row_holds_the_trial_without_its_tables_and_every_value():
    found = result(
        TRIAL, id_="x-1", metrics={"power_w": Absent("no"), "latency_p50_s": P50}, started_at="now"
    )
    row = found.row()
    assert (row["id"], row["status"], row["verdict"]) == ("x-1", "ok", found.verdict.trust.value)
    assert (row["started_at"], row["batch"], row["power_w"], row["latency_p50_s"]) == (
        "now",
        1,
        None,
        P50.value,
    )
    assert not {"options", "shapes", "workload_options", "scenario_options"} & set(row)
    assert Results([found]).records() == [row]


def test_queries_become_a_frame_and_their_lack_is_told(monkeypatch):
    found = result(TRIAL)
    monkeypatch.setattr("edgescope.records.result.frame", lambda columns: columns)
    assert found.frame() is found.queries.columns
    for reason, said in (
        (None, "it was listed without its raw rows"),
        (Message("E-X-1", "no"), "E-X-1: no."),
    ):
        with pytest.raises(UsageError) as caught:
            result(TRIAL, queries=None, reason=reason).frame()
        assert (caught.value.message.code, caught.value.message.evidence) == ("E-FRAME-2", said)


def test_results_are_counted_by_their_status_in_order():
    fine = result(TRIAL, metrics={"latency_p50_s": P50})
    full = result(TRIAL, status=Status.OOM, metrics={"latency_p50_s": Absent("gone")})
    assert [*Results([full, fine, full]).lines()] == [
        "3 results: 2 oom, 1 ok",
        "  dir/a.onnx onnxruntime fp32 b1: oom",
        "  dir/a.onnx onnxruntime fp32 b1: ok  p50 0.005123 s [0.005, 0.0052]",
        "  dir/a.onnx onnxruntime fp32 b1: oom",
    ]
    assert [next(iter(Results(some).lines())) for some in ([], [fine])] == ["0 results", "1 result: 1 ok"]


def test_what_nobody_measured_is_absent_or_out_of_range():
    bare = Result(id="x", trial=TRIAL, machine=MACHINE, status=Status.FAILED)
    assert bare.verdict.trust.value == "UNKNOWN" and bare.process == "fresh" and not bare.metrics
    worker = Worker(number=0, model="m", pid=7)
    assert (worker.start_ns, worker.stop_ns, worker.counted) == (-1, -1, None)
    fields = (worker.load_s, worker.peak_rss_bytes, worker.pss_bytes, worker.gpu_memory_bytes)
    assert {type(field) for field in fields} == {Absent}


# -- answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (Absent("no meter"), "a n/a: no meter", None),
        (Measured(12.3456, "W"), "a 12.35 W", 12.3456),
        (Measured(1.0, "W", 0.5), "a 1 W", 1.0),
        (Measured(1.0, "W", None, 0.5), "a 1 W", 1.0),
        (Measured(1.0, "W", 0.0, 2.0), "a 1 W [0, 2]", 1.0),
    ],
)
def test_a_figure_is_text_with_both_ends_or_none(field, text, value):
    assert (figure_text("a", field), plain(field)) == (text, value)


class Lines(Answer):
    """So many lines."""

    def __init__(self, count):
        self.count = count

    def lines(self):
        return (str(n) for n in range(self.count))

    def records(self):
        return [{"a": n, **({"b": n} if n else {})} for n in range(self.count)]


@pytest.mark.parametrize(
    ("count", "last"), [(0, ""), (12, "11"), (13, "... and 1 more"), (20, "... and 8 more")]
)
def test_twelve_lines_are_printed_and_the_rest_is_counted(count, last):
    shown = repr(Lines(count)).split("\n")
    assert shown[-1] == last and len(shown) == max(1, min(count, 13))


@pytest.mark.parametrize(
    ("installed", "made"),
    [({"pandas", "polars"}, ("pandas", {})), ({"polars"}, ("polars", {"strict": False}))],
)
def test_a_frame_is_of_the_first_program_that_is_installed(monkeypatch, installed, made):
    class Module:
        def __init__(self, name):
            self.name = name

        def DataFrame(self, columns, **more):
            return self.name, more, columns

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr("importlib.import_module", Module)
    assert frame({"a": [1]}) == (*made, {"a": [1]})
    assert Lines(2).frame() == (*made, {"a": [0, 1], "b": [None, 1]})


def test_a_frame_without_such_a_program_says_what_to_install(monkeypatch):
    from edgescope.errors import UnavailableError

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError) as caught:
        frame({})
    assert caught.value.message.code == "E-FRAME-1"


def test_without_its_rows_a_result_is_what_a_store_lists():
    whole = result(TRIAL)
    lean = whole.without_rows()
    assert whole.queries is not None and (lean.queries, lean.readings, lean.spans) == (None, None, None)
    assert lean == replace(whole, queries=None, readings=None, spans=None)
