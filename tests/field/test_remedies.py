"""A remedy can be typed as it stands: its flag is one of the verb that printed it, its value the nearest right one."""

import ast
import re
from functools import cache

import pytest

import catalogue
from edgescope.cli.main import main, parser
from edgescope.commandline.parsing import COMMAND, FLAG, fits, verbs
from edgescope.errors import Message, fitting, near_names
from edgescope.records import Trial
from edgescope.store.results import Store
from making import result


@cache
def remedies() -> list[str]:
    """The remedies of the source, with ... for what the moment fills in."""
    paths = sorted(catalogue.SOURCE.rglob("*.py"))
    found = {one.fix for path in paths for one in catalogue.said(ast.parse(path.read_text()))}
    return sorted(text for text in found if FLAG.search(text))


@pytest.mark.parametrize("verb", sorted(dict(verbs(parser()))))
def test_a_remedy_names_flags_of_the_verb_or_a_verb_that_has_them(verb):
    """A film that was handed to one verb as a flag was to be given as an option of another."""
    top = parser()
    known = dict(verbs(top))
    everywhere = set(top._option_string_actions)
    assert len(remedies()) > 100
    fitted = fits(verb, parser)
    for text in remedies():
        fix = fitted(text)
        flags = set(FLAG.findall(fix))
        if flags <= everywhere | set(known[verb]._option_string_actions) or COMMAND.search(text):
            continue
        named = re.match(r"edgescope ((?:(?!\.\.\.)\S+ )+)\.\.\. with ", fix)
        if named is None:
            assert not any(flags <= set(one._option_string_actions) for one in known.values()), (verb, fix)
            continue
        assert flags <= everywhere | set(known[named[1].strip()]._option_string_actions), (verb, fix)


@pytest.mark.parametrize(
    ("verb", "fix", "said"),
    [
        ("anomaly watch", "--workload-option source=FILE with a whole video", "FILE with a whole video"),
        ("bench", "--workload-option source=FILE", "--workload-option source=FILE"),
        ("report", "--replicates 5", "edgescope bench ... with --replicates 5"),
        ("optimize", "a longer --budget", "a longer --budget"),
        ("anomaly watch", "--warmup 0, or a longer input", "a longer input"),
        ("study nano_table", "--warmup 0, or a longer input", "--warmup 0, or a longer input"),
        ("show", "edgescope bench --replicates 5", "edgescope bench --replicates 5"),
        ("show", "", ""),
    ],
)
def test_how_a_remedy_is_fitted(verb, fix, said):
    assert fits(verb, parser)(fix) == said
    with fitting(fits(verb, parser)):
        assert str(Message("W-X-1", "x", fix=fix)) == "W-X-1: x." + f" Try: {said}" * bool(said)
    assert str(Message("W-X-1", "x", fix=fix)) == "W-X-1: x." + f" Try: {fix}" * bool(fix)


@pytest.mark.process
def test_a_warning_on_a_page_names_a_verb_that_has_its_flag(tmp_path, capsys):
    """It was made by the verb that measured; who shows the result cannot type its flag."""
    warning = Message("W-X-1", "the median moved", fix="--replicates 5")
    kept = Store(tmp_path).save(result(Trial(model="null", backend="null"), warnings=(warning,)))
    assert main(["show", str(kept.name), "--store", str(tmp_path)]) == 0
    assert "edgescope bench ... with --replicates 5" in " ".join(capsys.readouterr().out.split())


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (
            "bench null --backend null --workload video --workload-option video=a.mp4",
            "--workload-option source=a.mp4",
        ),
        (
            "bench null --backend null --workload video --workload-option film=b.avi",
            "--workload-option source=b.avi",
        ),
        ("bench null --backend null --workload video --workload-option quue=4", "--workload-option queue=4"),
        ("bench null --backend onnx", "--backend onnxruntime"),
        ("bench null --backend null --scenario serve", "--scenario server"),
        ("--board orin doctor", "--board agx_orin, orin_nano or orin_nx"),
        ("--board Orin-Nano2 doctor", "--board orin_nano"),
        ("optimize null --objective latancy", "--objective latency"),
        ("optimize null --objective p99", '--constraint "p99<=33ms"'),
        ("recommend --objective memory", '--constraint "memory<=2GB"'),
        ("optimize null --objective nonsense", "--objective latency, "),
        ("optimize null --constraint latncy<100ms", '--constraint "latency<100ms"'),
        ("optimize null --constraint fps<=30", '--constraint "fps>=30"'),
        ("optimize null --constraint fps<30", '--constraint "fps>30"'),
        ("optimize null --constraint memory<=2", '--constraint "memory<=2MB"'),
        ("list --sort latncy", "--sort latency"),
        ("list --status fail", "--status failed"),
        ("docs sweps", "edgescope docs sweeps"),
    ],
)
def test_the_nearest_right_value_is_offered(words, fix, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGESCOPE_STORE", str(tmp_path / "store"))
    assert main(words.split()) == 2
    assert f"Try: {fix}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "text", ["latency<100ms", "p50<100ms", "fps>=30", "throughput>=30fps", "watts<=10W", "energy<=1J"]
)
def test_objectives_and_constraints_have_one_set_of_names(text):
    from edgescope.analysis.cells.objective import goal, parse

    found = parse(text)
    assert goal(found.name) == found.metric


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("orin", ["agx_orin", "nano", "orin_nano", "tx2"], ["agx_orin", "orin_nano"]),
        ("IMAGENET", ["imagenet", "half"], ["imagenet"]),
        ("imagenett", ["imagenet", "half"], ["imagenet"]),
        ("agx-orin", ["agx_orin", "orin_nano"], ["agx_orin", "orin_nano"]),
        ("on", ["onnxruntime", "openvino"], []),
        ("zzz", ["a", "b"], []),
        ("resnet", ["resnet18", "resnet34", "resnet50", "resnet101"], None),
    ],
)
def test_near_names(word, known, near):
    found = near_names(word, known)
    assert len(found) <= 3 and set(found) <= set(known)
    assert near is None or (found[: len(near)] == near[: len(found)] and bool(found) == bool(near))


def test_a_preset_that_is_mistyped_is_no_missing_file(tmp_path, monkeypatch, capsys):
    PIL = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for i in range(3):
        PIL.new("RGB", (64, 64), (i * 40, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    words = ["bench", "squeezenet1_1", "--data", "photos", "--preprocess", "imagenett", "--store", "store"]
    assert main(words) == 2
    assert "Try: --preprocess imagenet" in " ".join(capsys.readouterr().err.split())


@pytest.mark.process
@pytest.mark.parametrize(
    "words", ["bench none.onnx", "layers none.onnx", "bench folder/none.tflite", "optimize none.pt2"]
)
def test_a_file_that_is_not_there_is_a_wrong_request(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words.split(), "--store", str(tmp_path / "store")]) == 2
    assert "none." in capsys.readouterr().err
