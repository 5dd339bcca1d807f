"""Show where a network's time goes, layer by layer: time, FLOPs, bytes, share of the roofline, and what bounds it.

The layers come from PyTorch's operations, ONNX Runtime's profile, OpenVINO's counters or trtexec's files, under the
path of the module that each was exported from; several engines are shown side by side. A roofline needs the machine's
ceilings, measured once: edgescope doctor --roofline cpu

  edgescope layers squeezenet1_1
  edgescope layers squeezenet1_1 --backend torch_eager,onnxruntime,openvino
  edgescope layers resnet50 --device cuda --precision fp16 --batch 8
  edgescope layers resnet50 --backend torch_eager,onnxruntime --trtexec profile.json,layers.json,times.json
"""

from __future__ import annotations

import argparse

from edgescope.commandline import context, trial_flags


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help=trial_flags.MODEL)
    trial_flags.add_what(sub, lists=True)
    text = "files of trtexec's --exportProfile, --exportLayerInfo, --exportTimes: one more engine, of any machine"
    sub.add_argument("--trtexec", type=trial_flags.words, default=(), metavar="FILE,..", help=text)
    context.add_verbose(sub)
    trial_flags.add_engine(sub.add_argument_group("engine"))
    trial_flags.add_output(sub, "file to write: the tables as well (.html, .md, .csv, .json)")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Profile the network in each engine and print its layers; return 0."""
    from edgescope.wings.layers.verb import document, layers

    context.ready(args)
    what = {name: trial_flags.axis(name, getattr(args, name), single=False) for name in trial_flags.WHAT}
    backend = what.pop("backend") or ()
    keys = what | trial_flags.engine_keys(args)
    found = layers(args.model, backend=backend, trtexec=args.trtexec, store=context.store(args), **keys)
    page = document(found, command=context.command())
    context.show(args, page)
    return 0
