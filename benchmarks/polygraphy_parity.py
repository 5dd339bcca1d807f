"""NVIDIA's Polygraphy on the same outputs as the accuracy gate, and whether both say the same.

Both get the outputs of one variant and of eager fp32 on the gate's inputs. The gate's centred L2 is held against the
quotient of two of Polygraphy's L2 norms (variant to fp32; fp32 to its own mean over the inputs), its top-1 agreement
against Polygraphy's comparison of the winning indices, input by input. Target: equal to all digits that the gate prints
(two of the L2, the whole count). Polygraphy's other measures of the same outputs are published beside, unjudged. Needs
`pip install polygraphy`.

    python benchmarks/polygraphy_parity.py [--variants squeezenet1_1:openvino:bf16,...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from facts import publish
from polygraphy.comparator import (
    Comparator,
    CosineSimilarityCompareFunc,
    IndicesCompareFunc,
    IterationResult,
    L2CompareFunc,
    RunResults,
    SimpleCompareFunc,
)
from polygraphy.logger import G_LOGGER

from edgescope import cache, registry
from edgescope.backends.base import Spec
from edgescope.models import zoo
from edgescope.models.base import Model
from edgescope.records import Measured
from edgescope.verify import judge

VARIANTS = "squeezenet1_1:openvino:bf16,mobilenet_v2:onnxruntime:int8,efficientnet_lite0:onnxruntime:int8"
PRINTED = ".2g"
"""How the gate's sentence prints centred L2."""
FINER = ".5g"
Arrays = tuple[np.ndarray[Any, Any], ...]


def answers(model: Model, backend: str, precision: str) -> tuple[Arrays, Any]:
    """Outputs on the gate's inputs, and what top-1 keeps of the labelled photographs of a trained network."""
    engine = registry.load(registry.BACKENDS, backend, "backend")()
    session = engine.load(engine.prepare(model, Spec(precision), cache.folder("artifacts")))
    try:
        return judge.answers(session, judge.basis(model), 1)
    finally:
        session.close()


def theirs(a: Sequence[Arrays], b: Sequence[Arrays], how: Any) -> list[Any]:
    """Polygraphy's answer for each pair of outputs: a result object, or whether they are equal."""
    runs = RunResults()
    for name, side in (("variant", a), ("reference", b)):
        runs[name] = [
            IterationResult({f"output{i}": o for i, o in enumerate(out)}, None, name) for out in side
        ]
    (compared,) = Comparator.compare_accuracy(runs, compare_func=how)
    return [found["output0"] for found in compared["variant", "reference"]]


def one(name: str, backend: str, precision: str) -> dict[str, Any]:
    """Both tools' measures of one variant, as printed, and whether they agree."""
    model = zoo.get(name)
    (got, named), (wanted, truly) = answers(model, backend, precision), answers(model, "torch_eager", "fp32")
    reference = judge.Reference(wanted, truly, "torch_eager fp32")
    told = judge.told(judge.basis(model), named, reference)
    fields = judge.judge(got, reference, precision=precision, told=told).fields
    mean = np.broadcast_to(wanted[0].mean(axis=0), wanted[0].shape)
    l2 = theirs([(got[0],)], [(wanted[0],)], L2CompareFunc())[0].l2_norm
    spread = theirs([(wanted[0],)], [(mean,)], L2CompareFunc())[0].l2_norm
    ours = fields["centred_l2"]
    assert isinstance(ours, Measured)
    both = {"edgescope": ours.value, "polygraphy": l2 / spread}
    out: dict[str, Any] = {
        "variant": f"{name} {backend} {precision}",
        "inputs": len(got[0]),
        "centred_l2": {tool: format(v, FINER) for tool, v in both.items()},
    }
    agree = len({format(v, PRINTED) for v in both.values()}) == 1
    top1 = fields["top1_agreement"]
    if isinstance(top1, Measured):
        indices = [[(a[0][i : i + 1].argmax(axis=1),) for i in range(len(a[0]))] for a in (got, wanted)]
        same = sum(map(bool, theirs(*indices, IndicesCompareFunc())))
        out["top1_same"] = {"edgescope": round(top1.value * top1.n), "polygraphy": same, "of": top1.n}
        agree = agree and out["top1_same"]["edgescope"] == same
    return out | {"agree": agree, "polygraphy_also": others(got, wanted)}


def others(got: Arrays, wanted: Arrays) -> dict[str, str]:
    """Polygraphy's further measures of the same outputs."""
    plain = theirs([(got[0],)], [(wanted[0],)], SimpleCompareFunc())[0]
    cosine = theirs([(got[0],)], [(wanted[0],)], CosineSimilarityCompareFunc())[0].cosine_similarity
    found = {
        "max_abs": plain.max_absdiff,
        "mean_abs": plain.mean_absdiff,
        "max_rel": plain.max_reldiff,
        "cosine": cosine,
    }
    return {k: format(v, FINER) for k, v in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", default=VARIANTS, metavar="MODEL:BACKEND:PRECISION,..")
    args = parser.parse_args()
    G_LOGGER.module_severity = G_LOGGER.CRITICAL  # it draws a histogram for every pair of outputs
    rows = []
    for text in args.variants.split(","):
        rows.append(one(*text.split(":")))
        print(rows[-1], file=sys.stderr, flush=True)
    figures = {"polygraphy": version("polygraphy"), "variants": rows}
    publish("polygraphy_parity", figures, met=all(row["agree"] for row in rows))


if __name__ == "__main__":
    main()
