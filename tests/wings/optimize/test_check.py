"""`python run.py --check DATA` in a folder that was saved: the gate again, by the same inputs, measure and figures."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import edgescope
from data_sets import classifier, folder, picture
from edgescope.models import zoo
from edgescope.models.image import preprocess
from edgescope.records import Status, Trial
from edgescope.study import grid
from edgescope.wings.optimize import check, save, standalone

METRIC = """
def score(outputs, labels):
    return 30.0 + 10 * (outputs.argmax(1) == labels).mean()
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory, answered_here):
    """A folder of labelled pictures, and what was saved of a classifier that was judged on them, by measure."""
    root = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patch, answered_here():
        patch.chdir(root)
        patch.syspath_prepend(str(root))
        patch.setenv("EDGESCOPE_CACHE", str(root / "cache"))
        (root / "my_score.py").write_text(METRIC)
        photos = folder(root / "photos", each=70)
        model, made = classifier(root / "c.onnx"), {}

        def by(metric="", data=photos):
            if (metric, data) not in made:
                trial = Trial(
                    model=str(model),
                    backend="onnxruntime",
                    data=str(data),
                    preprocess="half,crop=1",
                    metric=metric,
                    **{"min_s": 0.05, "max_s": 0.05, "warmup": 0.0, "options": {"threads": 1}},
                )
                found = edgescope.run(grid.pinned(trial, zoo.pin))
                assert found.verification is not None and found.verification.passed, found.reason
                found = replace(found, status=Status.OK, reason=None)
                made[metric, data] = save.save([found], [found], root / f"out{len(made)}")
            return made[metric, data]

        yield root, photos, by


def checked(out, data):
    """Run it without edgescope, and from another folder."""
    block = "import runpy, sys; sys.modules['edgescope'] = None; "
    block += f"sys.argv = ['run.py', '--check', {str(data)!r}]; sys.path.insert(0, {str(out)!r}); "
    block += f"runpy.run_path({str(out / 'run.py')!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", block], cwd=out.parent, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "title"), [("", "top-1"), ("my_score:score", "score"), ("agreement", "top-1 agreement")]
)
def test_the_gate_again_on_the_users_data(saved, metric, title):
    _, photos, by = saved
    out = by(metric)
    card = json.loads((out / "card.json").read_text())
    done = checked(out, photos)
    assert done.returncode == 0, done.stdout + done.stderr
    about = card["check"]
    assert done.stdout.startswith(f"{title}") and f"on {about['n']} of {about['n']} inputs" in done.stdout
    assert f"{about['value']:.4f} on the card" in done.stdout and "  passed" in done.stdout
    fields = card["checked"]["run_py"]["fields"]
    name = "top1_agreement" if metric == "agreement" else "accuracy"
    assert about["value"] == fields[name]["value"] and about["n"] == fields[name]["n"]
    assert "--check DATA" in (out / "card.md").read_text()


@pytest.mark.slow
def test_other_answers_and_other_pictures_are_told(saved, tmp_path):
    _, photos, by = saved
    out = tmp_path / "out"
    out.mkdir()
    for path in by().iterdir():
        if path.is_file():
            (out / path.name).write_bytes(path.read_bytes())
    text = (out / "run.py").read_text()
    (out / "run.py").write_text(
        text.replace("return session.run(None, batch)", "return [-a for a in session.run(None, batch)]")
    )
    done = checked(out, photos)
    assert done.returncode == 1 and "worse than allowed, not the figure of the card" in done.stdout
    picture(tmp_path / "others/dark/1.png", 90, 7)
    other = checked(by(), tmp_path / "others")
    assert other.returncode == 2 and "none of the" in other.stdout
    assert checked(by(), tmp_path / "gone").returncode == 2


@pytest.mark.slow
def test_a_picture_is_prepared_as_the_card_says_and_answered(saved):
    _, photos, by = saved
    out, shown = by(), sorted(photos.rglob("*.png"))[0]
    words = [sys.executable, "run.py", str(shown), "out.npz"]
    subprocess.run(words, cwd=out, capture_output=True, check=True)
    card = json.loads((out / "card.json").read_text())
    way = {k: v for k, v in card["preprocess"].items() if k != "said"}
    image = pytest.importorskip("PIL.Image")
    given = preprocess.Preprocess(**{k: tuple(v) if isinstance(v, list) else v for k, v in way.items()})
    session = pytest.importorskip("onnxruntime").InferenceSession(out / "model.onnx")
    (name,) = (i.name for i in session.get_inputs())
    with np.load(out / "out.npz") as answer, image.open(shown) as opened:
        assert np.allclose(answer["output_0"], session.run(None, {name: given(opened)[None]})[0], atol=1e-5)
    (out / "out.npz").unlink()
    read = (out / "card.md").read_text()
    assert "mean 0.5, 0.5, 0.5" in read and "std 0.5, 0.5, 0.5" in read and "channel order: RGB" in read
    done = subprocess.run([*words[:2], "run.py"], cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no picture" in done.stderr


@pytest.mark.slow
def test_what_was_not_judged_on_data_says_so(saved):
    root, _, by = saved
    out = by(data="")
    done = checked(out, root)
    assert done.returncode == 2 and "--data" in done.stdout


@pytest.mark.slow
def test_another_machine_is_told(saved, tmp_path, monkeypatch):
    _, _, by = saved
    card = json.loads((by() / "card.json").read_text())
    assert card["valid_for"]["packages"]["onnxruntime"] and check.elsewhere(by()) == []
    card["valid_for"]["packages"]["onnxruntime"] = "0.1"
    card["valid_for"] |= {"isa": ["made_up_isa"], "cpu": "Another CPU", "driver": "1.2.3"}
    (tmp_path / "card.json").write_text(json.dumps(card))
    said = "; ".join(check.elsewhere(tmp_path))
    for part in (
        "measured with 0.1",
        "lacks made_up_isa",
        "measured on Another CPU",
        "driver absent, measured with 1.2.3",
    ):
        assert part in said
    (tmp_path / "run.py").write_text((by() / "run.py").read_text())
    for name in ("check.py", "model.onnx", "sample.npz"):
        (tmp_path / name).write_bytes((by() / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "measured elsewhere; run edgescope optimize again: onnxruntime" in done.stderr


def test_the_preprocessing_that_is_copied_is_edgescopes(tmp_path):
    text = standalone.alone(preprocess, standalone.ALONE)
    assert "edgescope" not in text.partition("\n")[2]
    scope = {"__name__": "alone"}
    sys.modules["alone"] = type(sys)("alone")
    try:
        exec(compile(text, "alone", "exec"), scope)
        image = pytest.importorskip("PIL.Image")
        shown = image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 30, 3), dtype=np.uint8))
        for keys in (
            {"size": 16},
            {"size": (8, 12), "resize": "letterbox", "order": "bgr"},
            {"size": 9, "resize": "stretch"},
        ):
            assert np.array_equal(scope["Preprocess"](**keys)(shown), preprocess.Preprocess(**keys)(shown))
    finally:
        del sys.modules["alone"]
