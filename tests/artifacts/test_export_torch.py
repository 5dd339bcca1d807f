"""The steps of an export without an exporter: comparison, simplifying, and the line of the user's that is at fault."""

from __future__ import annotations

import errno
import itertools
import logging
import re
import sys
import sysconfig
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from edgescope.artifacts import onnx_export_torch as export
from edgescope.errors import ModelError
from edgescope.models.base import TensorSpec
from told import Told

SPECS = (TensorSpec("a", (2,), "float32"), TensorSpec("b", (2,), "int64"))


class Adds(torch.nn.Module):
    """Gives a + number and b."""

    def __init__(self, number=1.0, restless=0.0):
        super().__init__()
        self.number, self.restless = number, restless

    def forward(self, a, b):
        self.number += self.restless
        return {"sum": a + self.number, "rest": [b, "no tensor"]}


def net(module=None, batch=None, **keys):
    return export.Net(module or Adds(**keys), SPECS, {"b": (3, 5)}, batch)


def file(path, number=1.0, opset=18, idle=0):
    """Write what Adds computes, with idle nodes before it."""
    nodes, last = [], "a"
    for i in range(idle):
        nodes.append(h.make_node("Identity", [last], [f"i{i}"]))
        last = f"i{i}"
    nodes += [h.make_node("Add", [last, "w"], ["y"]), h.make_node("Identity", ["b"], ["z"])]
    ends = [
        h.make_tensor_value_info("a", T.FLOAT, ["N", 2]),
        h.make_tensor_value_info("b", T.INT64, ["N", 2]),
    ]
    outs = [
        h.make_tensor_value_info("y", T.FLOAT, ["N", 2]),
        h.make_tensor_value_info("z", T.INT64, ["N", 2]),
    ]
    graph = h.make_graph(nodes, "g", ends, outs, [nh.from_array(np.float32(number), "w")])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8), str(path))
    return path


def test_inputs_are_drawn_within_their_ranges_in_the_order_of_the_network():
    a, b = net().tensors(3)
    assert a.shape == b.shape == (3, 2) and a.dtype == torch.float32
    assert b.min() >= 3 and b.max() <= 5
    assert net().names == ["a", "b"]
    assert torch.equal(net().tensors(3)[0], a)


@pytest.mark.parametrize(("batch", "batches"), [(None, (1, 4)), (2, (2,)), (1, (1,))])
def test_a_file_is_checked_with_the_batches_it_takes(batch, batches):
    assert net(batch=batch).batches == batches


@pytest.mark.parametrize(
    ("got", "wanted", "error"),
    [
        ([1, 2], [1, 2], 0.0),
        ([1, 3], [1, 4], 0.25),
        ([1, 2], [1, -4], 1.5),
        ([0.25], [0], 0.25),
        ([0], [0], 0.0),
        ([], [], 0.0),
        ([1], [1, 2], float("inf")),
        ([[1, 2]], [1, 2], float("inf")),
    ],
)
def test_an_error_is_relative_to_the_largest_value(got, wanted, error):
    assert export._error(np.array(got, np.float32), np.array(wanted, np.float32)) == error


def test_the_worst_of_several_is_not_hidden_by_what_is_no_number():
    assert export._worst(iter([0.1, 0.3, 0.2])) == 0.3
    assert np.isnan(export._worst([0.1, float("nan"), 0.2]))


def test_every_tensor_of_an_output_counts_in_its_order():
    flat = export._flat({"x": torch.ones(1, requires_grad=True), "y": [2, (torch.zeros(2),)]})
    assert [part.tolist() for part in flat] == [[1], [0, 0]]


@pytest.mark.parametrize("number", [1.0, 1.0004])
def test_a_file_that_agrees_is_kept_with_its_largest_error(tmp_path, number):
    found = export._parity(net(number=number), file(tmp_path / "a.onnx"))
    assert found <= 1e-3 and (found > 1e-5) == (number > 1)


@pytest.mark.parametrize("number", [1.5, float("nan")])
def test_a_file_that_computes_otherwise_is_refused(tmp_path, number):
    with pytest.raises(ModelError) as caught:
        export._parity(net(number=number), file(tmp_path / "a.onnx"))
    error = caught.value
    assert error.code == "E-EXPORT-3" and "allowed 0.001" in error.evidence and "itself" not in error.evidence


def test_the_tolerance_itself_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_difference", lambda session, net, n: {1: 0.0, 4: 1e-3}[n])
    assert export._parity(net(), file(tmp_path / "a.onnx")) == 1e-3
    monkeypatch.setattr(export, "_difference", lambda session, net, n: {1: 1.1e-3, 4: 0.0}[n])
    with pytest.raises(ModelError, match=r"error 0\.0011, allowed 0\.001"):
        export._parity(net(), file(tmp_path / "a.onnx"))


def test_a_network_that_answers_differently_each_time_is_said_so(tmp_path):
    with pytest.raises(ModelError) as caught:
        export._parity(net(restless=2.0), file(tmp_path / "a.onnx"))
    assert re.search(r"; the network itself differs by 0\.\d+ from call to call", caught.value.evidence)
    assert export._restless(net(restless=1e-5)) == ""
    assert export._restless(net()) == ""


def test_what_the_runtime_raises_is_told_in_one_short_line(tmp_path, monkeypatch):
    def fails(path):
        raise RuntimeError("a \n b" + "x" * 400)

    monkeypatch.setattr(export.onnx_write, "session", fails)
    with pytest.raises(ModelError) as caught:
        export._parity(net(), tmp_path / "a.onnx")
    assert caught.value.evidence == "RuntimeError: a b" + "x" * 297


@pytest.mark.parametrize("written", [18, 17])
def test_the_opset_has_to_be_the_one_that_was_asked_for(written):
    model = SimpleNamespace(
        opset_import=[
            SimpleNamespace(domain=d, version=v) for d, v in (("", written), ("ai.onnx", 9), ("x", 30))
        ]
    )
    if written == 17:
        assert export._asserted(model, 17) == 17
        return
    with pytest.raises(ModelError) as caught:
        export._asserted(model, 17)
    assert caught.value.code == "E-EXPORT-4" and "18" in caught.value.what and "17" in caught.value.what


@pytest.fixture
def slimmer(monkeypatch):
    """Stand in for onnxslim, as this function of a model."""

    def stands_in(change):
        monkeypatch.setattr(export.cache, "versions", lambda names: dict.fromkeys(names, "1"))
        monkeypatch.setattr(export, "need", lambda *given: lambda model: (print("advice"), change(model))[1])

    return stands_in


def slimmed(number=1.0, idle=0):
    def change(model):
        del model.graph.node[: len(model.graph.node) - 2 - idle]
        if not idle:
            model.graph.node[0].input[0] = "a"
        model.graph.initializer[0].CopyFrom(nh.from_array(np.float32(number), "w"))
        return model

    return change


@pytest.mark.parametrize(
    ("change", "said", "nodes"),
    [
        (slimmed(), "onnxslim: 5 to 2 nodes", 2),
        (lambda model: model, "no: onnxslim found nothing to leave out of 5 nodes", 5),
        (slimmed(number=7.0), "no: onnxslim's file was refused: ModelError: ", 5),
        (slimmed(idle=1), "no: onnxslim's file was refused: ", 5),
    ],
    ids=["smaller", "the same", "other numbers", "broken"],
)
def test_a_simpler_file_is_kept_where_it_is_simpler_and_right(tmp_path, capsys, slimmer, change, said, nodes):
    path = file(tmp_path / "a.onnx", idle=3)
    slimmer(change)
    assert export._simplified(net(), path)["simplified"].startswith(said)
    assert len(onnx.load(str(path)).graph.node) == nodes and capsys.readouterr().out == ""


def test_without_the_simplifier_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(export.cache, "versions", lambda names: dict.fromkeys(names, "absent"))
    assert export._simplified(net(), tmp_path / "a.onnx") == {"simplified": "no: onnxslim is not installed"}


@pytest.mark.parametrize(
    ("opset", "script", "exporter"),
    [
        (18, False, "torch.export"),
        (17, False, "torchscript"),
        (19, False, "torch.export"),
        (18, True, "torchscript"),
    ],
)
def test_the_exporter_is_chosen_by_opset_and_network(tmp_path, monkeypatch, opset, script, exporter):
    asked, clock = [], iter([1.0, 3.3456])
    writes = {
        name: lambda net, path, opset, n=name: asked.append(n) or file(path, opset=opset) for name in "wt"
    }
    monkeypatch.setattr(export, "_write", writes["w"])
    monkeypatch.setattr(export, "_trace", writes["t"])
    monkeypatch.setattr(export, "_simplified", lambda net, path: {"simplified": "yes"})
    monkeypatch.setattr(export, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    if script:
        monkeypatch.setattr(torch.jit, "ScriptModule", Adds)
    module = Adds().train()
    found = export.export(module, SPECS, tmp_path / "a.onnx", opset=opset)
    assert not module.training and asked == ["w" if exporter == "torch.export" else "t"]
    more = {"simplified": "yes"} if exporter == "torchscript" else {}
    parity = {"max_rel_error": 0.0, "batches": [1, 4], "against": "torch_eager fp32"}
    made = {"build_s": 2.346, "exporter": exporter, "opset": opset, "nodes": 2, "parity": parity}
    assert found == made | more


def test_opset_18_is_the_usual_one(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_write", lambda net, path, opset: file(path, opset=opset))
    assert export.export(Adds(), SPECS, tmp_path / "a.onnx", batch=3)["parity"]["batches"] == [3]


class Inner(torch.nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.inplace = inplace

    def forward(self, x):
        return x.relu_() if self.inplace else x.relu()


class Outer(torch.nn.Module):
    """Rectifies; `uses`: what it overwrote is used afterwards."""

    def __init__(self, uses, *inplace):
        super().__init__()
        self.uses, self.layers = uses, torch.nn.ModuleList(map(Inner, inplace))

    def forward(self, a):
        x = a - 0.5
        y = self.layers[1](self.layers[0](x))
        return x + y if self.uses else y


@pytest.mark.parametrize(
    ("uses", "inplace", "within"),
    [
        (False, (True, True), [False, False]),
        (True, (True, True), [True, True]),
        (False, (False, True), [False, False]),
    ],
)
def test_layers_overwrite_nothing_meanwhile_where_that_changes_nothing(uses, inplace, within):
    module = Outer(uses, *inplace)
    with export._out_of_place(export.Net(module, SPECS[:1])):
        assert [part.inplace for part in module.layers] == within
    assert [part.inplace for part in module.layers] == list(inplace)
    with pytest.raises(ValueError, match="x"), export._out_of_place(export.Net(module, SPECS[:1])):
        raise ValueError("x")
    assert [part.inplace for part in module.layers] == list(inplace)


def test_a_network_that_overwrites_nothing_is_not_run():
    module = Outer(False, False, False)
    module.forward = None
    with export._out_of_place(export.Net(module, SPECS[:1])):
        pass


# -- what stopped it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_fault_of_the_network(tmp_path, number):
    def full(net, path, opset):
        raise OSError(number, "full")

    with pytest.raises(OSError, match="full"):
        export._written(full, net(), tmp_path / "a.onnx", 18)


@pytest.mark.parametrize(("batch", "said"), [(None, "open batch axis"), (3, "batch 3")])
@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "gone"), KeyError("gone")])
def test_whatever_an_exporter_raises_is_told_with_the_line_of_the_user(tmp_path, batch, said, error):
    def breaks(net, path, opset):
        raise error

    with pytest.raises(ModelError) as caught:
        export._written(breaks, net(batch=batch), tmp_path / "a.onnx", 18)
    assert caught.value.code == "E-EXPORT-2" and caught.value.what.endswith(f" {said}")
    where = r"test_export_torch\.py:\d+ in breaks: raise error; (FileNotFoundError|KeyError): .*gone'?"
    assert re.fullmatch(where, caught.value.evidence)


def test_without_a_line_of_the_user_the_cause_alone_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "of", lambda error: "")

    def breaks(net, path, opset):
        raise KeyError("gone")

    with pytest.raises(ModelError) as caught:
        export._written(breaks, net(), tmp_path / "a.onnx", 18)
    assert caught.value.evidence == "KeyError: 'gone'"


def chained(*errors):
    """Return the last error, of which each one before is the cause of the next."""
    for cause, error in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[-1]


def test_causes_are_followed_to_the_first_and_circles_end():
    first, second, third = ValueError("1"), KeyError("2"), OSError("3")
    assert export.chain(chained(first, second, third)) == [third, second, first]
    first.__context__ = third
    assert export.chain(third) == [third, second, first]
    lone = ValueError("4")
    lone.__context__ = first
    lone.__cause__ = second
    assert export.chain(lone)[:2] == [lone, second]


@pytest.mark.parametrize(
    ("text", "last", "first"),
    [
        ("one\n  two  \n\n", "ValueError: two", "ValueError: one"),
        ("\n\n", "ValueError: ", "ValueError: "),
        ("x" * 400, "ValueError: " + "x" * 300, "ValueError: " + "x" * 300),
        ("a" * 400 + "\n" + "b" * 400, "ValueError: " + "b" * 300, "ValueError: " + "a" * 300),
    ],
)
def test_one_line_of_an_error_is_enough(text, last, first):
    assert export.last_line(ValueError(text)) == last
    assert export._cause(chained(ValueError(text), KeyError("outer"))) == first


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Files as they may stand in a traceback: the user's, a package's, torch's and Python's."""
    site, standard = tmp_path / "site", tmp_path / "python"
    own, packaged, engine, python = (
        tmp_path / "net.py",
        site / "timm/layers.py",
        site / "torch/nn.py",
        standard / "ast.py",
    )
    for path in (own, packaged, engine, python):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\n    second = 2\nthird " + "x" * 200 + "\n")
    paths = {"purelib": str(site), "platlib": str(tmp_path / "none"), "stdlib": str(standard)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    return SimpleNamespace(own=own, packaged=packaged, engine=engine, python=python, paths=paths, site=site)


def test_files_are_the_users_a_packages_or_machinery(sources, tmp_path):
    kinds = [
        export._kind(str(path)) for path in (sources.own, sources.packaged, sources.engine, sources.python)
    ]
    assert kinds == [export.OWN, export.PACKAGE, export.MACHINERY, export.MACHINERY]
    assert export._kind(str(tmp_path / "none.py")) == export.MACHINERY
    assert export._kind(export.__file__) == export.MACHINERY
    sources.paths.update(purelib=str(tmp_path / "none"), platlib=str(sources.site))
    assert export._kind(str(sources.packaged)) == export.PACKAGE
    assert export._kind(str(sources.engine)) == export.MACHINERY


def said(*places):
    """Return an error whose text names these places, as torch.export writes them."""
    return ValueError("\n".join(f'  File "{path}", line {line}, in {name}' for path, line, name in places))


def test_the_deepest_line_of_the_user_is_told(sources):
    places = [(sources.own, 1, "outer"), (sources.packaged, 1, "layer"), (sources.own, 2, "forward")]
    found = export.of(said(*places, (sources.engine, 1, "relu")))
    assert found == "net.py:2 in forward: second = 2"
    assert export.of(said(places[1], (sources.engine, 1, "relu"))) == "layers.py:1 in layer: first"
    assert export.of(said((sources.engine, 1, "relu"), (sources.python, 2, "walk"))) == ""
    assert export.of(ValueError("nothing")) == ""


def test_the_lines_of_causes_count_as_deeper(sources):
    inner, outer = said((sources.own, 2, "inner")), said((sources.own, 1, "outer"))
    assert export.of(chained(inner, outer)) == "net.py:2 in inner: second = 2"


@pytest.mark.parametrize(
    ("line", "text"),
    [(1, ": first"), (2, ": second = 2"), (3, ": third " + "x" * 114), (4, ""), (0, "")],
)
def test_the_text_of_a_line_is_shown_where_there_is_one(sources, line, text):
    assert export._text(str(sources.own), line) == text


def test_tracebacks_are_read_as_well():
    try:
        raise KeyError("x")
    except KeyError as error:
        found = export.of(error)
    assert re.fullmatch(
        r'test_export_torch\.py:\d+ in test_tracebacks_are_read_as_well: raise KeyError\("x"\)', found
    )


def test_an_exporters_words_stay_off_the_terminal(capsys, monkeypatch):
    told = Told()
    monkeypatch.setattr(logging.getLogger(), "handlers", [told])
    logging.disable(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as warned, export._quiet():
            print("progress")
            print("progress", file=sys.stderr)
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            logging.getLogger().warning("advice")
            logging.getLogger().error("told")
        assert logging.root.manager.disable == logging.DEBUG and not warned
    finally:
        logging.disable(logging.NOTSET)
    assert capsys.readouterr() == ("", "") and told.messages == ["told"]


class Traced:
    """Stands in for torch.onnx.export: notes what it is asked for and writes the file."""

    def __init__(self, program=None):
        self.program = program

    def __call__(self, module, given, path=None, **how):
        self.given, self.how = given, how
        if path is not None:
            file(Path(path), opset=how["opset_version"])
        return self.program


@pytest.mark.parametrize(("batch", "rows"), [(None, 2), (3, 3)])
def test_a_trace_follows_one_batch_and_opens_its_axis(tmp_path, monkeypatch, batch, rows):
    exporter = Traced()
    monkeypatch.setattr(torch.onnx, "export", exporter)
    export._trace(net(batch=batch), tmp_path / "a.onnx", 13)
    assert [len(t) for t in exporter.given] == [rows, rows] and exporter.how["dynamo"] is False
    names = ["output_0", "output_1"]
    assert (exporter.how["input_names"], exporter.how["output_names"]) == (["a", "b"], names)
    axes = None if batch else {name: {0: "N"} for name in ("a", "b", *names)}
    assert exporter.how["dynamic_axes"] == axes
    assert [p.name for p in tmp_path.iterdir()] == ["a.onnx"]


@pytest.mark.parametrize(("batch", "rows"), [(None, 2), (3, 3)])
@pytest.mark.parametrize(("limit", "beside"), [(8, False), (7, True)])
def test_an_export_opens_the_batch_axis_and_puts_large_weights_beside(
    tmp_path, monkeypatch, batch, rows, limit, beside
):
    saved = []
    program = SimpleNamespace(save=lambda path, external_data: saved.append((path, external_data)))
    exporter = Traced(program)
    monkeypatch.setattr(torch.onnx, "export", exporter)
    monkeypatch.setattr(export.onnx_write, "LIMIT", limit)
    module = Adds()
    module.weight = torch.nn.Parameter(torch.zeros(2))  # eight bytes
    export._write(net(module, batch), tmp_path / "a.onnx", 18)
    assert saved == [(str(tmp_path / "a.onnx"), beside)]
    assert [len(t) for t in exporter.given] == [rows, rows]
    assert exporter.how["dynamo"] is True and exporter.how["verbose"] is False
    shapes = exporter.how["dynamic_shapes"]
    if batch:
        assert shapes is None
    else:
        assert [list(shape) for shape in shapes] == [[0], [0]]
        axis = shapes[0][0]
        assert (axis.__name__, axis.min, axis.max) == ("N", 1, 4096)


def test_a_network_that_takes_any_arguments_gets_its_axes_in_one(tmp_path, monkeypatch):
    exporter = Traced(SimpleNamespace(save=lambda path, external_data: None))
    monkeypatch.setattr(torch.onnx, "export", exporter)
    monkeypatch.setattr(export, "takes_any", lambda module: True)
    export._write(net(), tmp_path / "a.onnx", 18)
    (shapes,) = exporter.how["dynamic_shapes"]
    assert len(shapes) == 2
    export._write(net(batch=3), tmp_path / "a.onnx", 18)
    assert exporter.how["dynamic_shapes"] is None


@pytest.mark.parametrize(
    ("inputs", "outputs"), [(("a",), 2), (("a", "b", "c"), 2), (("a", "b"), 1), (("a", "b"), 3)]
)
def test_a_file_with_other_inputs_or_outputs_is_refused(tmp_path, monkeypatch, inputs, outputs):
    def run(names, given):
        return [np.zeros((len(given["a"]), 2), np.float32)] * outputs

    names = [SimpleNamespace(name=name) for name in inputs]
    session = SimpleNamespace(get_inputs=lambda: names, run=run)
    monkeypatch.setattr(export.onnx_write, "session", lambda path: session)
    with pytest.raises(ModelError) as caught:
        export._parity(net(), tmp_path / "a.onnx")
    assert caught.value.code == "E-EXPORT-3" and caught.value.evidence.startswith("ValueError: zip()")
