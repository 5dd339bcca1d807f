"""nvprof's CSV: rows that public programs print of it, every unit, what is damaged, and any text at all."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.cli.main import main
from edgescope.errors import UsageError
from edgescope.records import SPAN_KINDS
from edgescope.wings.trace.imported import read
from edgescope.wings.trace.importers import nvprof

GPU = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread",'
    '"Static SMem","Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream",'
    '"Name","Correlation_ID"'
)
UNITS = "us,us,,,,,,,,KB,KB,KB,GB/s,,,,,,,"
CARD = '"GeForce RTX 2080 Ti (0)","1"'
SET = f'0.000000,1.888000,,,,,,,,,,1.003906,0.507097,"Device",,{CARD},"7","[CUDA memset]",272'
COPY = (
    f'4643.346000,1.536000,,,,,,,,,,0.125000,0.077610,"Pinned","Device",{CARD},"22","[CUDA memcpy HtoD]",316'
)
KERNEL = f'4700.5,12.25,64,1,1,256,1,1,32,0.0,0.0,,,,,{CARD},"7","void add<float>(float*, int)",320'
HEAD = "==2119== NVPROF is profiling process 2119, command: ./a\n==2119== Profiling result:\n"
API = '======== Profiling result:\n"Start","Duration","Name","Correlation_ID"\nms,us,,\n'
CALLS = '4.600,9.5,"cudaLaunchKernel",320\n4.720,100,"cudaDeviceSynchronize",321\n'


def rows(path):
    trace = read(path)
    columns, names = trace.spans.columns, trace.spans.names
    return [
        (
            names[columns["name"][i]],
            SPAN_KINDS[columns["kind"][i]],
            *(int(columns[c][i]) for c in ("start_ns", "end_ns", "device", "stream", "correlation", "bytes")),
        )
        for i in range(len(trace.spans))
    ]


def written(tmp_path, text):
    (tmp_path / "trace.csv").write_text(text)
    return tmp_path / "trace.csv"


def test_kernels_copies_and_calls_have_their_times_places_and_sizes(tmp_path):
    path = written(tmp_path, HEAD + "\n".join((GPU, UNITS, SET, COPY, KERNEL)) + "\n" + API + CALLS)
    assert rows(path) == [
        ("memset", "copy", 0, 1888, 0, 7, 272, 1028),
        ("H2D", "copy", 4643346, 4644882, 0, 22, 316, 128),
        ("void add<float>(float*, int)", "kernel", 4700500, 4712750, 0, 7, 320, -1),
        ("cudaLaunchKernel", "api", 4600000, 4609500, -1, -1, 320, -1),
        ("cudaDeviceSynchronize", "sync", 4720000, 4820000, -1, -1, 321, -1),
    ]
    assert read(path).facts["gpus"] == {"0": {"name": "GeForce RTX 2080 Ti"}}


def test_the_command_says_how_long_a_launch_waited(tmp_path, capsys):
    path = written(tmp_path, HEAD + "\n".join((GPU, UNITS, KERNEL)) + "\n" + API + CALLS)
    assert main(["trace", str(path), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["traces"].values()
    assert (one["launches"]["kernel"]["count"], one["gpus"][0]["busy_ns"]) == (1, 12250)
    assert one["launches"]["queue"]["total_ns"] == 4700500 - 4609500


def test_an_older_table_numbers_its_kernels_in_their_names(tmp_path):
    heading = GPU.replace('"SrcMemType","DstMemType",', "").removesuffix(',"Correlation_ID"')
    kernel = '1.5,2.25,1,1,1,32,1,1,8,0,0,,,"NVIDIA Tegra X1 (0)","1","7","sgemm(float*) [106]"'
    (found,) = rows(written(tmp_path, f"{HEAD}{heading}\ns,ms,,,,,,,,KB,B,MB,GB/s,,,,\n{kernel}\n"))
    assert found == ("sgemm(float*)", "kernel", 1_500_000_000, 1_502_250_000, 0, 7, 106, -1)


def test_a_row_that_cannot_be_read_costs_itself_and_a_file_of_them_is_refused(tmp_path):
    bad = ("x,1,,,", ",,,,,", SET.replace("1.888000", "-1"), SET.replace('"[CUDA memset]"', ""))
    path = written(tmp_path, "\n".join((GPU, UNITS, KERNEL, *bad, "5,")))
    trace = read(path)
    assert len(trace.spans) == 1 and sum(trace.facts["left_out"].values()) == 5
    with pytest.raises(UsageError) as told:
        read(written(tmp_path, "\n".join((GPU, "weeks,us", KERNEL))))
    assert told.value.code == "E-PROF-1"


def test_a_summary_is_not_a_trace(tmp_path, capsys):
    path = written(tmp_path, '==7== Profiling result:\n"Type","Time(%)","Time","Calls","Avg"\n')
    assert main(["trace", str(path)]) == 2
    assert "--print-gpu-trace" in capsys.readouterr().err


@given(
    st.lists(st.sampled_from([GPU, UNITS, SET, COPY, KERNEL, API, CALLS, "==1== x"]) | st.text(max_size=40))
)
@settings(max_examples=60, deadline=None)
def test_any_lines_are_read_or_refused(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("any") / "trace.csv"
    path.write_text("\n".join(lines), errors="replace")
    try:
        trace = nvprof.read(path)
    except UsageError as error:
        assert error.code == "E-PROF-1"
    else:
        assert (trace.spans.columns["end_ns"] >= trace.spans.columns["start_ns"]).all()
