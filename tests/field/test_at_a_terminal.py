"""What a user sees at a terminal: the answer, its rows and its files stay at every width; a remedy can be typed."""

import contextlib
import dataclasses
import io

import pytest

from edgescope.cli.main import main, parser
from edgescope.records import Measured, Status, Trial, Trust, Verdict
from edgescope.store.results import Store
from making import queries, result

ENGINES = ("torch_eager", "torch_compile", "onnxruntime", "openvino", "litert", "tensorrt", "trtexec")


def saved(store: Store, backend: str, us: float, replicate: int = 0, **keys: object) -> None:
    trial = Trial(model="resnet18", backend=backend, replicate=replicate)
    metrics = {
        "latency_p50_s": Measured(us * 1e-6, "s", n=400),
        "latency_p99_s": Measured(us * 2e-6, "s", n=400),
        "throughput_sps": Measured(1e6 / us, "samples/s", n=400),
        "peak_rss_bytes": Measured(4e8, "bytes"),
    }
    given = {"metrics": metrics, "queries": queries(400, int(us * 1000) + replicate), "warnings": ()} | keys
    store.save(result(trial, **given))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Store(tmp_path / "store")
    monkeypatch.setenv("EDGESCOPE_STORE", str(made.root))
    return made


class Terminal(io.StringIO):
    """What a terminal of so many columns was sent."""

    columns = 80

    def isatty(self) -> bool:
        return True

    def said(self, call, *given, **keys) -> list[str]:
        """Return the lines that a call printed; `code` is what it returned."""
        self.seek(0)
        self.truncate()
        with contextlib.redirect_stdout(self):
            self.code = call(*given, **keys)
        found = self.getvalue().splitlines()
        assert found and max(map(len, found)) <= self.columns, [x for x in found if len(x) > self.columns]
        return found


@pytest.fixture(params=[60, 80, 120])
def terminal(request, monkeypatch):
    """Stdout as a terminal of so many columns, without colours."""
    made = Terminal()
    made.columns = request.param
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    return made


@pytest.mark.process
def test_a_list_keeps_the_measurement_at_every_width(store, terminal):
    """A list of eighty columns held a long error and no latency."""
    saved(store, "onnxruntime", 1500)
    reason = (
        "E-INT8-13: int8 needs inputs of yours, and none of what is said here is a measurement of any kind"
    )
    saved(store, "openvino", 900, status=Status.UNSUPPORTED, reason=reason, metrics={}, queries=None)
    found = terminal.said(main, ["list"])
    assert "p50" in found[0] and any("1.5 ms" in line for line in found)
    assert not any("inputs of yours" in line for line in found)
    assert any("unsupported" in line for line in found)
    assert "E-INT8-13" in " ".join(terminal.said(main, ["list", "-v"]))
    assert terminal.code == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("word", "first"), [("latency", "litert"), ("fps", "litert"), ("started", "torch_eager")]
)
def test_a_list_is_sorted_by_a_figure_the_best_first(store, capsys, word, first):
    for hour, (backend, us) in enumerate((("torch_eager", 3000), ("litert", 1000), ("openvino", 2000))):
        saved(store, backend, us, started_at=f"2026-01-01T0{hour}:00:00.000+00:00")
    failed = {"status": Status.FAILED, "reason": "E-X-1: no", "metrics": {}, "queries": None}
    saved(store, "trtexec", 1, started_at="2026-01-01T09:00:00.000+00:00", **failed)
    assert main(["list", "--sort", word]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert first in rows[0] and "trtexec" in rows[-1]


@pytest.mark.process
def test_what_a_list_can_be_sorted_by_is_said(store, capsys):
    assert main(["list", "--sort", "latancy"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("Try: --sort latency")


@pytest.mark.slow
def test_the_last_lines_hold_the_pick_the_baseline_and_the_file(store, terminal):
    """An answer of eighty columns ended with the head of a table and no row at all."""
    from edgescope.report import terminal as shown
    from edgescope.report import variants
    from edgescope.report.chapter import chapter

    noisy = Verdict(
        Trust.DISTURBED, ("other processes used 72 % of all cores, for a long time, and more " * 3,)
    )
    for number, backend in enumerate(ENGINES):
        for replicate in range(3):
            saved(store, backend, 2000 - 90 * number, replicate, verdict=noisy)
    page = variants.document([chapter(list(store.results()))], written={"report": "edgescope-report.html"})
    for limit in (3, 6, 8):
        found = terminal.said(shown.show, page, limit=limit)
        assert found[0].startswith("Use  trtexec fp32 b1")
        assert any(line.endswith("pick") for line in found)
        assert any(line.endswith("baseline") for line in found)
        assert found[-1].split() == ["report", "edgescope-report.html"]
        assert any(line.startswith("and ") and line.endswith("more: -v") for line in found)


def test_prose_goes_before_the_first_rows_and_further_rows_before_prose(capsys):
    from edgescope.report import document as doc
    from edgescope.report import terminal as shown

    rows = tuple(doc.Row((f"v{i}", f"{i}")) for i in range(9))
    table = doc.Table((doc.Column("variant"), doc.Column("figure")), rows)
    page = doc.Document("t", (doc.Text("prose", "lead"), table))
    text = {n: ["".join(w for w, _ in line) for line in shown.lines(page, limit=n)] for n in range(2, 13)}
    assert "prose" in text[7] and not any(line.startswith("v4") for line in text[7])
    assert "prose" not in text[6] and any(line.startswith("v3") for line in text[6])
    assert any("and 5 rows and 1 line more: -v" in line for line in text[6])
    assert any(line.startswith("v0") for line in text[2]), "one row always stays"
    assert len(text[11]) == 11 and "more" not in "".join(text[11])


@pytest.mark.process
@pytest.mark.parametrize("verdict", [Trust.CLEAN, Trust.DISTURBED])
@pytest.mark.parametrize("count", [1, 6])
def test_a_row_of_a_card_is_whole(store, terminal, verdict, count):
    """The verdict, the startup and the gate ended in dots after their second line."""
    said = (
        "steal 0.1 %",
        "the clock of the cores was as high after the run as before it, " * count + "whole",
    )
    saved(store, "onnxruntime", 1500, verdict=Verdict(verdict, said))
    found = " ".join(" ".join(terminal.said(main, ["show", "latest"])).split())
    assert "…" not in found and said[1] in found


@pytest.mark.process
def test_why_a_result_is_unstable_stands_in_the_first_lines(store, capsys):
    moved = "E-STAT-1: the latency moved by +53 % within the window. Try: a longer --duration"
    saved(store, "onnxruntime", 1500, status=Status.UNSTABLE, reason=moved)
    assert main(["show", "latest"]) == 1
    assert "E-STAT-1" in "".join(capsys.readouterr().out.splitlines()[:3])


def test_a_warning_is_said_in_words(capsys):
    from edgescope.errors import Message
    from edgescope.report import document as doc
    from edgescope.report import terminal as shown

    found = [Message(f"W-X-{i}", f"thing {i} is odd", "evidence", "It matters") for i in range(5)]
    shown.show(doc.Document("t", doc.warnings(found)))
    out = capsys.readouterr().out
    assert "W-X-0: thing 0 is odd" in out and "and 2 more warnings" in out and "evidence" not in out
    shown.show(doc.Document("t", doc.warnings(found)), verbose=True)
    assert "W-X-4: thing 4 is odd (evidence). It matters." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("pairs", [1, 2])
def test_one_or_two_pairs_decide_nothing_and_are_not_called_a_tie(store, capsys, pairs):
    """Variants far apart, measured once or twice, were called statistically tied."""
    for replicate in range(pairs):
        saved(store, "torch_eager", 846_000, replicate)
        saved(store, "onnxruntime", 12_900, replicate)
    from edgescope.report import variants
    from edgescope.report.chapter import chapter

    page = variants.document([chapter(list(store.results()))])
    pick = page.data if "pick" in page.data else next(iter(page.data["answers"]))
    assert not pick["pick"]["ties"] and pick["pick"]["undecided"] == ["torch_eager fp32 b1"]
    from edgescope.report import terminal as shown

    shown.show(page)
    said = capsys.readouterr().out
    assert "tied" not in said and f"about {3 - pairs} more pair" in said


@pytest.mark.process
def test_recommend_names_each_cell_once_and_no_tie_without_an_interval(store, capsys):
    for backend, us in (("onnxruntime", 1000), ("openvino", 1001)):
        saved(store, backend, us)
    main(["recommend", "--objective", "latency"])
    said = capsys.readouterr().out
    assert "tied" not in said and "undecided" in said


@pytest.mark.parametrize(
    "verb", ["bench", "optimize", "capacity", "study nano_table", "train", "train advise"]
)
@pytest.mark.parametrize("wide", [60, 80, 120])
def test_help_has_one_width_and_commands_that_can_be_pasted(verb, wide, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(wide))
    texts = []
    for words in ([*verb.split(), "--help"], ["help", *verb.split()]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    long = [line for line in texts[0].splitlines() if len(line) > wide and len(line.split()) > 2]
    assert not long and texts[0].startswith(f"usage: edgescope {verb} ")
    assert texts[0].count("arXiv") <= 1
    assert not [line for line in texts[0].splitlines() if "edgescope " in line and "   --" in line]


def test_a_study_is_described_with_its_source_once():
    from edgescope.wings.studies.paper import papers

    for paper in papers().values():
        about = f"{paper.title} ({paper.source}): {paper.summary}."
        assert about.count(paper.source) == 1


def test_what_is_left_is_never_said_to_be_nothing():
    from edgescope import units

    for seconds in (0.0, 0.2, 0.49):
        assert "0 s" not in units.remaining(seconds) and units.remaining(seconds)
    assert units.remaining(0.5) and "0 s left" not in units.remaining(0.51).replace("1 s", "")
    assert units.remaining(None) == "" and units.remaining(40) == ", about 40 s left"
    assert units.remaining(None, 12.0) == ", 12 s so far" and "12 s so far" in units.remaining(0.0, 12.0)
    assert "so far" not in units.remaining(40, 12.0)


def test_every_verb_that_prints_an_answer_takes_v():
    whole = parser()
    verbs = next(a for a in whole._actions if a.dest == "verb").choices
    answers = ("bench", "optimize", "recommend", "predict", "capacity", "offload", "compare", "explain")
    for verb in (*answers, "layers", "list", "show"):
        assert "-v" in verbs[verb]._option_string_actions, verb


def test_a_code_is_explained_and_not_only_placed(capsys):
    assert main(["docs", "E-BATCH-1"]) == 0
    said = capsys.readouterr().out
    assert "What to do:" in said and "--batch" in said and "The number:" in said and "Why:" in said


@pytest.mark.process
def test_a_card_names_the_file_and_not_its_digest(store, capsys):
    trial = dataclasses.replace(Trial(model="null", backend="null"), model="tiny.onnx#6365e1a1d20a")
    store.save(result(trial))
    assert main(["show", "latest"]) == 0
    assert capsys.readouterr().out.startswith("tiny.onnx  ")
