"""Memory of a language model by hand, and the context that fits."""

import pytest

from edgescope.records import Absent
from edgescope.wings.generation import memory, shapes
from edgescope.wings.generation.memory import Held, Room

MB = 1e6


def held(**other):
    a = shapes.find("smollm2-135m").architecture
    known = {"shape": a, "read_bytes": 1, "weight_bytes": 538 * MB, "kv_bytes": 2, "engine_bytes": 60 * MB}
    return Held(**known | other)


def test_cache_and_prompt_add_to_weights_and_runtime():
    between = 1024 * (3 * 1536 + 2 * 576) * 4
    each = 2 * 11_520 * 1152 + between  # 2 x 30 layers x 3 heads x 64 numbers of two bytes a token
    one, four = (held(kv_bytes=2).predicted(240 * MB, 1024, 128, together=n) for n in (1, 4))
    assert one == pytest.approx(838 * MB + each) and four == pytest.approx(838 * MB + 4 * each)


def test_loading_may_need_more_than_answering_does():
    loading = held(loading_bytes=900 * MB)
    assert loading.predicted(240 * MB, 8, 8) == 1200 * MB
    assert loading.longest(950 * MB) == 0 < loading.longest(970 * MB)


def test_the_longest_context_is_the_most_that_is_predicted_to_fit():
    known, free = held(), 700 * MB
    most = known.longest(free)
    assert 1 < most < 8192
    assert known.predicted(0, most, 0) <= free < known.predicted(0, most + 1, 0)
    assert known.longest(1e12) == 8192
    assert known.longest(590 * MB) == 0
    assert known.longest(free, together=4) == pytest.approx(most / 4, abs=1)


def test_an_engine_that_says_nothing_or_computes_elsewhere_is_absent():
    room = Room(100 * MB, 1000 * MB)
    assert set(memory.figures(None, room, 8, 8, 1).values()) == {memory.UNTOLD}
    assert set(memory.figures(held(on_host=False), room, 8, 8, 1).values()) == {memory.ELSEWHERE}
    found = memory.figures(held(), room, 128, 128, 1)
    assert found["memory_predicted_bytes"].value == held().predicted(100 * MB, 128, 128)
    assert found["context_fits_tokens"].value == held().longest(1000 * MB)


def test_room_is_what_this_process_and_machine_hold():
    now = Room.now()
    assert 10 * MB < now.process < now.process + now.free
    assert not isinstance(now.free, Absent)
