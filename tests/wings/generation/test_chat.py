"""Chat templates as tokens around a prompt, on files that are written here."""

import pytest

from edgescope import registry
from edgescope.errors import UnsupportedError, UsageError
from edgescope.wings.generation import chat
from edgescope.wings.generation.chat import Around
from edgescope.wings.generation.gguf_file import named

pytest.importorskip("jinja2")
pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def model():
    return named("llm:tiny-llama")


def encode(text):
    return tuple(text.encode())


def text(found, control):
    names = {number: name for name, number in control.items()}
    return "".join(names.get(token) or chr(token) for token in found)


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_the_files_template_stands_around_the_prompt_with_its_control_tokens(model, system):
    found = chat.around(model, encode, "chat", system)
    control = {"<|im_start|>": 510, "<|im_end|>": 511}
    said = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    assert text(found.before, control) == f"{said}<|im_start|>user\n"
    assert text(found.after, control) == "<|im_end|>\n<|im_start|>assistant\n"


def test_a_prompt_keeps_its_length_with_its_template_inside():
    made = Around((1, 2), (3,))
    assert made.put(lambda n: (9,) * n, 6) == (1, 2, 9, 9, 9, 3)
    assert made.put(lambda n: (), 6) == ()
    with pytest.raises(UsageError) as caught:
        made.put(lambda n: (9,) * n, 3)
    assert caught.value.message.code == "E-GEN-9" and "=19" in caught.value.message.fix


def test_what_has_no_template_is_refused(model, monkeypatch):
    assert chat.around(model, encode, "none", "") == Around()
    with pytest.raises(UsageError) as caught:
        chat.around(model, encode, "none", "Be brief.")
    assert caught.value.message.code == "E-GEN-10"
    monkeypatch.setattr(model, "templated", False)
    with pytest.raises(UnsupportedError) as lacking:
        chat.around(model, encode, "chat", "")
    assert lacking.value.message.code == "E-GEN-11"


def test_a_template_cannot_reach_what_is_not_its_own():
    hostile = {chat.TEMPLATE: "{{ messages.__class__.__mro__ }}"}
    with pytest.raises(Exception, match="unsafe"):
        chat.rendered(hostile, "")


def test_the_decoder_answers_a_prompt_in_its_template(model, tmp_path):
    pytest.importorskip("torch")
    from edgescope.backends.base import Spec
    from edgescope.wings.generation.engine import Request

    backend = registry.load(registry.BACKENDS, "torch_decoder", "backend")()
    session = backend.load(backend.prepare(model, Spec("as_is"), tmp_path))
    found = chat.around(model, session.encode, "chat", "Be brief.")
    prompt = found.put(lambda n: session.encode("abc " * n)[:n], 64)
    assert len(prompt) == 64 and 510 in prompt
    assert session.generate(Request(prompt, "", 2)).prompt_tokens == 64
    session.close()
