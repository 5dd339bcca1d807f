"""benchmarks/peers.py: its arithmetic, and how the tools' answers are read; no tool is installed."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import peers
import peers_arms
import peers_turn

from two_speeds import abba


def test_agreement_counts_the_same_class():
    assert peers.agreement([{"classes": [[1, 2, 3, 4], [1, 2, 3, 9]]}]) == 0.75


def peer(value, agreement=1.0, same=True):
    gain = {"value": value, "lo": 0.9 * value, "hi": 1.1 * value}
    return {"speedup": gain, "agreement": {"value": agreement}, "same_model": same}


def test_no_right_answer_to_the_same_network_may_be_surely_faster():
    found = dict.fromkeys(peers_arms.PEERS, peer(2.0)) | {"edgescope": peer(4.0)}
    assert peers.met(found)
    assert peers.met(found | {"olive": peer(4.5)}) and not peers.met(found | {"olive": peer(6.0)})
    assert peers.met(found | {"olive": peer(6.0, agreement=0.5), "ultralytics": peer(9.0, same=False)})
    assert not peers.met(found | {"edgescope": peer(4.0, agreement=0.5)})
    assert peers.met(
        found | {"ai-edge": {"absent": "no", "speedup": {"absent": "no"}}, "edgelens": {"absent": "no"}}
    )
    assert not peers.met(found | {"edgescope": {"absent": "no"}})
    assert not peers.met({"edgescope": peer(4.0)})


TABLE = """
Benchmarks legend:  - ✅ Success  - ❎ Export passed but validation failed  - ❌️ Export failed
+-----------------------------------------------------------------------------------------------------------+
|      Format                  Status❔   Size (MB)   metrics/accuracy_top1   Inference time (ms/im)   FPS  |
+===========================================================================================================+
| 1    PyTorch                 ❌         0.0         -                       -                        -    |
| 2    TorchScript             ✅         10.9        0.0                     183.09                   5.46 |
| 4    OpenVINO                ✅         10.8        0.0                     110.15                   9.08 |
| 8    TensorFlow SavedModel   ❌         0.0         -                       -                        -    |
+-----------------------------------------------------------------------------------------------------------+
"""


def test_the_table_of_ultralytics_is_read():
    rows = peers_arms.yolo_rows(TABLE)
    assert rows == {"PyTorch": None, "TorchScript": 5.46, "OpenVINO": 9.08, "TensorFlow SavedModel": None}


def node(parent, agreement, ms):
    values = {"right-accuracy_score": {"value": agreement}, "latency-avg": {"value": ms}}
    return {"parent_model_id": parent, "metrics": {"value": values}}


def test_olives_footprint_is_read():
    made = {"a": node(None, 1.0, 9.0), "b": {"parent_model_id": "a", "metrics": None}}
    points = peers_arms.olive_points(
        made | {"c": node("b", 0.84, 4.0), "d": node("b", 0.1, 1.0), "e": node("b", 0.9, 5.0)}
    )
    assert [p["latency_ms"] for p in points] == [9.0, 4.0, 1.0, 5.0]
    assert "0.84, 4.00 ms" in peers_arms.olive_best(points)
    assert "no model" in peers_arms.olive_best(points[:1])


def test_a_point_of_olives_search_is_told_in_short():
    step = "{quant_mode[1]: static, precision[1]: uint8, per_channel[1]: True, calibrate_method[1]: Entropy,"
    assert peers_arms.olive_point(step) == "static uint8 Entropy per channel"
    assert (
        peers_arms.olive_point("{quant_mode[0]: dynamic, calibrate_method[0]: OLIVE_IGNORED_PARAM_VALUE}")
        == "dynamic"
    )


def test_the_error_that_stopped_a_tool_is_told():
    text = (
        "Traceback (most recent call last):\nImportError: cannot import name 'X'\n\nSet HYDRA_FULL_ERROR=1\n"
    )
    assert peers_arms.last_words(text) == "ImportError: cannot import name 'X'"
    assert peers_arms.last_words("one\ntwo\n") == "two" and not peers_arms.last_words("")


@pytest.mark.process
def test_a_tool_that_fails_says_its_last_words(tmp_path):
    place = peers_arms.Place(tmp_path, tmp_path, Path(sys.executable))
    with pytest.raises(RuntimeError, match="ValueError: no such network"):
        place.run(sys.executable, "-c", "raise ValueError('no such network')")
    assert place.run(sys.executable, "-c", "print(7)")[0] == "7\n"


def test_every_pick_can_be_run():
    """A kind that an arm names and that peers_turn.py does not know would show after minutes."""
    text = Path(peers_arms.__file__).read_text()
    named = {part.split('"')[0] for part in text.split('"kind": "')[1:]}
    assert named and named <= peers_turn.KINDS.keys()


RUN = "INPUTS = ('x',)\ndef run(batch):\n    return [batch['x'] * 2]\n"


@pytest.mark.slow
def test_a_process_answers_and_takes_turns(tmp_path):
    """The saved folder of edgescope is run by its own run.py; classes first, then the time of a turn."""
    (tmp_path / "run.py").write_text(RUN)
    np.save(tmp_path / "gate.npy", np.eye(10, dtype=np.float32))
    place = peers_arms.Place(tmp_path, tmp_path, Path(sys.executable))
    side = peers.Turn(place, {"kind": "folder", "path": str(tmp_path)}, own=True)
    assert side.read() == {"classes": list(range(10))}
    assert 0 < side.turn(0.01) < 1
    side.close()
    side = peers.Turn(place, {"kind": "folder", "path": str(tmp_path), "pictures": 2}, own=True)
    assert side.read() == {"classes": [0, 1]}
    side.close()
    broken = peers.Turn(place, {"kind": "folder", "path": str(tmp_path / "none")}, own=True)
    assert "run.py" in broken.read()["absent"]
    broken.close()


def test_what_is_known_is_told_after_each_round_and_classes_are_named_once(monkeypatch):
    checked, rounds = [], []

    def pair(place, answer, args, pictures):
        checked.append(pictures)
        if answer == "bad":
            raise RuntimeError("gone")
        return {
            "turns": abba([math.log(2)] * 2, [0.0] * 2),
            "classes": [[1] * pictures, [1] * pictures],
        }

    monkeypatch.setattr(peers, "pair", pair)
    args = SimpleNamespace(pairs=3, pictures=4)
    found = peers.measured({"a": (None, "good"), "b": (None, "bad")}, args, rounds.append)
    assert found["a"]["speedup"]["value"] == pytest.approx(2) and found["a"]["agreement"] == {"value": 1.0}
    assert found["b"]["speedup"] == {"absent": "gone"} and len(rounds) == 3
    assert "3 pairs" not in rounds[0]["a"]["speedup"]["absent"] and sorted(checked) == [0, 0, 4, 4]


def test_olive_gets_a_floor_and_then_speed():
    config = peers_arms.olive_config(Path("data"), "CPUExecutionProvider")
    quick, right = (m["sub_types"][0] for m in config["evaluators"]["mine"]["metrics"])
    assert right["goal"]["value"] == peers.FLOOR and (quick["priority"], right["priority"]) == (1, 2)
    assert json.dumps(config)


PUBLISHED = peers.ROOT / "published" / "peers.json"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the final run has not been made")
def test_the_table_of_the_document_is_the_published_one():
    made = peers.table(json.loads(PUBLISHED.read_text())["figures"]["peers"])
    page = peers.DOCUMENT.read_text()
    assert peers.with_table(page, made) == page


def test_a_row_is_told_in_a_hundred_columns():
    whole = {
        "version": "0.6.0",
        "same_model": True,
        "seconds": 94.6,
        "tried": ["a", "b", "c", "d"],
        "pick": "pytorch compile autocast bf16",
        "speedup": {"value": 2.114, "lo": 2.05, "hi": 2.17},
        "agreement": {"value": 0.985},
        "checked": "own evaluator",
        "interval": "no",
    }
    made = peers.table({"optimum-benchmark": whole, "gone": {"absent": "RuntimeError: x", "version": "1"}})
    row = made.splitlines()[2]
    assert (
        "| 95 s | 4 | pytorch compile autocast bf16 | 2.11 [2.05, 2.17] | 98% | own evaluator | no |" in row
    )
    assert "| gone 1 | none |" in made
    marks = f"before {peers.MARKS[0]} old {peers.MARKS[1]} after"
    assert peers.with_table(marks, made).startswith(f"before {peers.MARKS[0]}\n| tool")
    assert "old" not in peers.with_table(marks, made) and peers.with_table(marks, made).endswith(" after")
