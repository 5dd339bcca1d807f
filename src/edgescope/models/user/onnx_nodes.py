"""Which node of an ONNX file an engine or the checker stumbled over: its name, operator, domain and opset.

Engines name the operator, or the node, somewhere in a long text, each in its own words. What they name is looked up
in the file, so that every message says the same four things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

STANDARD = ("", "ai.onnx")
MOST = 3


def described(node: Any, model: Any) -> str:
    """Return `node 'n7' (Frobnicate of domain com.acme, opset 1)`."""
    domain = "ai.onnx" if node.domain in STANDARD else node.domain
    versions = {
        "ai.onnx" if entry.domain in STANDARD else entry.domain: entry.version for entry in model.opset_import
    }
    name = node.name or "making " + ", ".join(node.output)
    return f"node {name!r} ({node.op_type} of domain {domain}, opset {versions.get(domain, 'not stated')})"


def every(graph: Any) -> Iterator[Any]:
    """Yield every node of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from every(inner)


def named_in(path: Path, text: str) -> str:
    """Return the nodes of an ONNX file whose name or operator a text contains, one an operator; '' where none is.

    A node's own name decides; the operators are looked for where no node is named.
    """
    model = onnx.load(str(path), load_external_data=False)
    words = set(re.findall(r"[\w./:-]+", text)) | set(re.findall(r"\w+", text))
    nodes = list(every(model.graph))
    found = [node for node in nodes if node.name and node.name in words] or [
        node for node in nodes if node.op_type in words
    ]
    by_operator = {(node.domain, node.op_type): node for node in reversed(found)}
    return ", ".join(described(node, model) for node in list(by_operator.values())[:MOST])


def opsets(path: Path) -> str:
    """Return `ai.onnx 18, com.acme 1` of an ONNX file."""
    model = onnx.load(str(path), load_external_data=False)
    return ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import)
