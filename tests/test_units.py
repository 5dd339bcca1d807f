"""Numbers and words as they stand in messages."""

import pytest

from edgescope.units import counted


@pytest.mark.parametrize(
    ("count", "word", "said"),
    [
        (1, "cell", "1 cell"),
        (0, "cell", "0 cells"),
        (2, "cell", "2 cells"),
        (3, "process", "3 processes"),
        (2, "box", "2 boxes"),
        (2, "copy", "2 copies"),
        (1, "copy", "1 copy"),
        (2, "replay", "2 replays"),
    ],
)
def test_what_is_counted_stands_in_its_plural(count, word, said):
    assert counted(count, word) == said
