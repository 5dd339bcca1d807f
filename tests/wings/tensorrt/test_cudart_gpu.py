"""The CUDA runtime binding on a real GPU; needs libcudart and a driver, nothing else."""

import ctypes
import re
import time

import numpy as np
import pytest

from edgescope.backends import cudart
from edgescope.errors import DeviceError, SafetyError, UnavailableError

pytestmark = pytest.mark.gpu


ABSENT = ("cudaErrorInsufficientDriver", "cudaErrorNoDevice")


@pytest.fixture(scope="module")
def cuda():
    """The CUDA runtime; only a machine without one, or without a GPU, is excused."""
    try:
        runtime = cudart.runtime()
        runtime.device_name()
    except UnavailableError as error:
        pytest.skip(str(error))
    except DeviceError as error:
        if not any(name in str(error) for name in ABSENT):
            raise
        pytest.skip(str(error))
    return runtime


@pytest.fixture
def stream(cuda):
    handle = cuda.stream()
    yield handle
    cuda.destroy_stream(handle)


def test_the_device_says_who_it_is(cuda):
    assert cuda.version() >= 10020
    assert re.fullmatch(r"\d+\.\d", cuda.compute_capability())
    assert cuda.device_name().isprintable()
    assert cuda.device_name()
    free, total = cuda.memory()
    assert 0 < free <= total


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int64"])
def test_what_goes_in_comes_out(cuda, stream, kind):
    source, target = cuda.pinned((3, 1000), kind), cuda.pinned((3, 1000), kind)
    source[:] = np.random.default_rng(0).integers(-100, 100, (3, 1000)).astype(kind)
    target[:] = 0
    memory = cuda.malloc(source.nbytes)
    cuda.to_device(memory, source, stream)
    cuda.to_host(target, memory, stream)
    cuda.synchronize(stream)
    cuda.free(memory)
    np.testing.assert_array_equal(source, target)


def test_pinned_memory_is_freed_with_its_last_view(cuda):
    freed = []
    real = cuda.library.cudaFreeHost
    cuda.library.cudaFreeHost = lambda address: freed.append(address) or real(ctypes.c_void_p(address))
    try:
        array = cuda.pinned((4, 4), "float32")
        view = array[1]
        del array
        assert not freed
        del view
        assert len(freed) == 1
    finally:
        cuda.library.cudaFreeHost = real


def test_events_agree_with_the_host_clock(cuda, stream):
    array = cuda.pinned((64 << 20,), "uint8")
    memory = cuda.malloc(array.nbytes)
    start, stop = cuda.event(), cuda.event()
    for _ in range(2):
        before = time.perf_counter_ns()
        cuda.record(start, stream)
        for _ in range(8):
            cuda.to_device(memory, array, stream)
        cuda.record(stop, stream)
        cuda.synchronize(stream)
        host = time.perf_counter_ns() - before
    device = cuda.elapsed_ns(start, stop)
    for event in (start, stop):
        cuda.destroy_event(event)
    cuda.free(memory)
    assert 0 < device <= host * 1.05


def test_a_captured_graph_does_what_was_noted_down_each_time(cuda, stream):
    source, target = cuda.pinned((100,), "float32"), cuda.pinned((100,), "float32")
    memory = cuda.malloc(source.nbytes)
    target[:] = -1
    cuda.begin_capture(stream)
    cuda.to_device(memory, source, stream)
    cuda.to_host(target, memory, stream)
    graph = cuda.end_capture(stream)
    cuda.synchronize(stream)
    assert (target == -1).all(), "capturing alone must not copy"
    for value in (1, 2):
        source[:] = value
        cuda.launch(graph, stream)
        cuda.synchronize(stream)
        assert (target == value).all()
    cuda.destroy_graph(graph)
    cuda.free(memory)


def test_more_memory_than_there_is_counts_as_out_of_memory(cuda):
    with pytest.raises(SafetyError, match=r"E-CUDART-2.*cudaErrorMemoryAllocation"):
        cuda.malloc(cuda.memory()[1] * 4)
    cuda.free(cuda.malloc(16))


def test_a_wrong_call_has_cudas_name_for_it(cuda):
    with pytest.raises(DeviceError, match=r"cudaMemcpyAsync failed with cudaErrorInvalid"):
        cuda.call("cudaMemcpyAsync", 0, 0, 16, 99, 0)
