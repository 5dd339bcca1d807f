"""Workers must answer alike, and the rule of thumb for memory comes from what they hold and answer."""

import numpy as np
import pytest

from edgescope.bench import crowd
from edgescope.errors import WrongOutputError
from edgescope.records import Absent, ModelInfo, Trial

TRIAL = Trial(model="null", backend="null", processes=3)
INFO = ModelInfo("null", "unknown", False, "nothing", "d1", 1000, 0)


@pytest.fixture
def answers(tmp_path):
    def make(*outputs):
        said = []
        for number, arrays in enumerate(outputs):
            path = tmp_path / f"{number}.npz"
            np.savez(path, *arrays)
            said.append({"outputs": str(path), "input_bytes": 10, "output_bytes": 5})
        return said

    return make


ONES = np.ones(100, np.float32)


def test_rounding_passes_and_another_answer_does_not(answers):
    crowd._alike(TRIAL, answers([ONES], [ONES * (1 + 5e-4)], [ONES]))
    with pytest.raises(
        WrongOutputError, match=r"E-CREW-4: worker 2 answers.*relative l2 0.01, 0.001 allowed"
    ):
        crowd._alike(TRIAL, answers([ONES], [ONES], [ONES * 1.01]))


@pytest.mark.parametrize(
    "other", [[ONES[:50]], [ONES, ONES], [ONES * np.nan], []], ids=["shape", "count", "nan", "none"]
)
def test_answers_of_another_form_are_not_alike(answers, other):
    with pytest.raises(WrongOutputError, match="E-CREW-4"):
        crowd._alike(TRIAL, answers([ONES], other))


def test_workers_that_answer_nothing_answer_alike(answers):
    crowd._alike(TRIAL, answers([], []))


def test_the_rule_is_processes_times_model_and_two_batches(answers):
    (said,) = answers([ONES])
    assert crowd._rule(TRIAL, INFO, {"bytes": 700}, said).value == 3 * (700 + 2 * 15)
    assert crowd._rule(TRIAL, INFO, {"bytes": None}, said).value == 3 * (4000 + 2 * 15)
    nothing = ModelInfo("null", "unknown", False, "nothing", "d1")
    assert isinstance(crowd._rule(TRIAL, nothing, {}, said), Absent)
