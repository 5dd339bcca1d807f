"""A pipeline as data."""

import sys

import pytest

from edgescope.bench.parts import HERE
from edgescope.errors import UsageError
from edgescope.records import Trial
from edgescope.wings.video import description, pipeline
from edgescope.wings.video.description import Described, Description


def written(tmp_path, text):
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    return path


def test_a_file_says_stages_and_options_with_the_fields_of_python(tmp_path):
    found = description.read(
        written(
            tmp_path,
            'queue = "drop_oldest"\n[[stage]]\nname = "decode"\n'
            '[[stage]]\nname = "blur"\ncall = "mine:blur"\nthreads = 2\nplace = "gpu"\nbatch = 8\n',
        )
    )
    stages = (Described("decode"), Described("blur", "mine:blur", 2, "gpu", 8))
    assert found == Description(stages, {"queue": "drop_oldest"})


def test_without_stages_it_has_the_built_in_ones(tmp_path):
    assert description.read(written(tmp_path, "cameras = 2\n")).stages == ()
    plan = pipeline.planned(Trial(model="null", workload="video"), HERE)
    assert [stage.name for stage in plan.stages] == ["decode", "preprocess", "infer", "postprocess"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stage = 3", "no list of tables"),
        ("[[stage]]\nname = 'infer'", "the first stage is 'infer'"),
        ("[[stage]]\nname='decode'\n[[stage]]\nname='decode'", "two stages are called decode"),
        ("[[stage]]\nname='decode'\n[[stage]]\nname='infer'", "infer has no preprocess before it"),
        ("[[stage]]\nname='decode'\nthread=2", "did you mean threads?"),
        ("[[stage]]\nname='decode'\nthreads=0", "threads must be "),
        ("[[stage]]\nname='decode'\nplace='tpu'", "place must be cpu or gpu"),
        ("[[stage]]\nname='decode'\n[[stage]]\nname='blur'", "blur is not built in and has no call"),
        ("[[stage]]\nname='decode'\n[[stage]]\nname='blur'\ncall='blur'", "call must be module:callable"),
        ("[[stage]", "cannot be read"),
        ("stage = []", "no list of tables"),
        ("stage = [1]", "no list of tables"),
        (
            "[[stage]]\nname='decode'\n[[stage]]\nname='infer'\n[[stage]]\nname='preprocess'",
            "no preprocess before",
        ),
        ("[[stage]]\nname='decode'\n[[stage]]\nname=''\ncall='a:b'", "a stage has no name"),
        ("[[stage]]\nname='decode'\nthreads=1.5", "threads must be "),
        ("[[stage]]\nname='decode'\nbatch=-1", "batch must be a number of frames"),
        ("[[stage]]\nname='decode'\nbatch=1.5", "batch must be a number of frames"),
        ("[[stage]]\nname='decode'\n[[stage]]\nname='crops'\nbatch=1", "so it has no batch"),
        ("[[stage]]\nname='decode'\nqqqqqqqq=2", "no key 'qqqqqqqq'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, says):
    with pytest.raises(UsageError, match="E-PIPE-1") as caught:
        description.read(written(tmp_path, text))
    assert says in str(caught.value)


def test_a_stage_of_ones_own_is_a_function_or_a_class(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    (tmp_path / "own_stages.py").write_text(
        "def mark(item):\n    item.notes['seen'] = 1\n\n"
        "class Count:\n    n = 0\n    def __call__(self, item):\n        self.n += 1\n"
    )
    assert Described("mark", "own_stages:mark").loaded().__name__ == "mark"
    assert Described("count", "own_stages:Count").loaded().n == 0
    assert sys.path.count(str(tmp_path)) == 1 and sys.path[0] == str(tmp_path)
    with pytest.raises(UsageError, match=r"the stage gone cannot be loaded from 'own_stages:gone'"):
        Described("gone", "own_stages:gone").loaded()


def test_a_stage_says_what_it_leaves_out_and_which_may_have_a_batch(tmp_path):
    assert Described("blur") == Described("blur", "", 1, "cpu", 0)
    names = ("decode", "preprocess", "infer", "postprocess")
    rows = "".join(f'[[stage]]\nname = "{name}"\nbatch = 2\nthreads = 1\n' for name in names)
    rows += '[[stage]]\nname = "blur"\ncall = "mine:blur"\nbatch = 1\n[[stage]]\nname = "crops"\nbatch = 0\n'
    found = description.read(written(tmp_path, rows))
    assert found.stages[:4] == tuple(Described(name, batch=2) for name in names)
    assert found.stages[4:] == (Described("blur", "mine:blur", batch=1), Described("crops"))
    assert tuple(stage.name for stage in description.USUAL) == names
    scored = [stage.name for stage in description.SCORED]
    assert scored == ["decode", "preprocess", "infer", "score", "alarm"]
