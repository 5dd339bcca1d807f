"""The chat template of a model around a prompt, as tokens: what a user's words are sent in.

The template is the file's own (Jinja, `tokenizer.chat_template`). It is rendered once around a mark; what stands before
and after the mark becomes tokens, control tokens by their names. A prompt keeps its length: its template is inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Model
from edgescope.registry import need
from edgescope.wings.generation.gguf_file import VOCABULARY, GgufFile, header
from edgescope.wings.generation.tokenizer import CONTROL

MARK = "\u241eprompt\u241e"
KINDS, TEMPLATE = "tokenizer.ggml.token_type", "tokenizer.chat_template"
Encode = Callable[[str], "Sequence[int] | None"]


@dataclass(frozen=True)
class Around:
    """The tokens before and after a prompt."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def put(self, made: Callable[[int], tuple[int, ...]], length: int) -> tuple[int, ...]:
        """Return a prompt of `length` tokens with its template; `made(n)` gives n tokens of text, () if it has none."""
        if (own := length - len(self.before) - len(self.after)) < 1:
            raise UsageError(
                "E-GEN-9",
                f"a prompt of {length} tokens has no room for its chat template",
                evidence=f"the template alone has {len(self.before) + len(self.after)} tokens",
                effect="Nothing was measured",
                fix=f"--workload-option prompt_tokens={length - own + 16}",
            )
        return (*self.before, *inside, *self.after) if (inside := made(own)) else ()


def around(model: Model, encode: Encode, template: str, system: str) -> Around:
    """Return what stands around a prompt by the options `template` and `system`.

    UnsupportedError for a model without a template, or a server, which puts its own around every message.
    """
    if template == "none" and not system:
        return Around()
    if template == "none":
        raise UsageError(
            "E-GEN-10",
            "a system prompt needs a chat template",
            effect="Nothing was measured",
            fix="--workload-option template=chat",
        )
    if not isinstance(model, GgufFile) or not model.templated:
        raise UnsupportedError(
            "E-GEN-11",
            f"{model.info.name} states no chat template",
            effect="Nothing was measured",
            fix="leave template=chat out; a server puts its own around a message (--option api=chat)",
        )
    facts = header(model.path, texts=True).facts
    before, mark, after = rendered(facts, system).partition(MARK)
    if not mark:
        raise UnsupportedError(
            "E-GEN-11", f"the chat template of {model.info.name} leaves the prompt out", fix="template=none"
        )
    control = controls(facts)
    return Around(tokens(before, control, encode), tokens(after, control, encode))


def rendered(facts: Mapping[str, Any], system: str) -> str:
    """Return the file's template around MARK, ready for the answer."""
    need("jinja2", "a chat template", "pip install jinja2")
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # a file's template is not trusted

    said = [{"role": "system", "content": system}] if system else []
    names = facts.get(VOCABULARY) or ()

    def named(key: str) -> str:
        number = facts.get(f"tokenizer.ggml.{key}_token_id")
        return str(names[number]) if isinstance(number, int) and number < len(names) else ""

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(facts[TEMPLATE])
    return str(
        made.render(
            messages=[*said, {"role": "user", "content": MARK}],
            add_generation_prompt=True,
            bos_token=named("bos"),
            eos_token=named("eos"),
        )
    )


def controls(facts: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the control tokens of a file: name -> number."""
    kinds = facts.get(KINDS) or ()
    pairs = zip(facts.get(VOCABULARY) or (), kinds, strict=False)
    return {str(name): number for number, (name, kind) in enumerate(pairs) if kind == CONTROL}


def tokens(text: str, control: Mapping[str, int], encode: Encode) -> tuple[int, ...]:
    """Return the tokens of a text in which the names of control tokens mean these tokens."""
    if not control:
        return tuple(encode(text) or ())
    names = "|".join(re.escape(name) for name in sorted(control, key=len, reverse=True))
    found: list[int] = []
    for part in filter(None, re.split(f"({names})", text)):
        found += [control[part]] if part in control else (encode(part) or ())
    return tuple(found)
