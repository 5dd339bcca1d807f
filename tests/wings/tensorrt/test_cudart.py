"""What can be known of the CUDA runtime binding without a GPU."""

import pytest
from fake_cudart import FakeCudart

from edgescope.backends import cudart
from edgescope.backends.cudart import CudaRuntime
from edgescope.errors import UnavailableError


def test_no_library_says_what_was_tried(monkeypatch, tmp_path):
    broken = tmp_path / "lib64" / "libcudart.so.12"
    broken.parent.mkdir()
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(cudart, "candidates", lambda: iter([str(broken)]))
    with pytest.raises(UnavailableError, match=r"E-CUDART-3.*libcudart\.so\.12.*CUDA_HOME"):
        cudart.library()


def test_cuda_home_comes_first_and_the_newest_of_it(monkeypatch, tmp_path):
    for name in ("libcudart.so", "libcudart.so.11.0"):
        (tmp_path / "lib64").mkdir(exist_ok=True)
        (tmp_path / "lib64" / name).touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert next(cudart.candidates()) == str(tmp_path / "lib64" / "libcudart.so.11.0")


@pytest.mark.process
def test_wheels_of_nvidia_are_found(monkeypatch, tmp_path):
    folder = tmp_path / "site-packages" / "nvidia" / "cuda_runtime" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudart.so.12").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path / "site-packages")])
    assert list(cudart.candidates())[-1] == str(folder / "libcudart.so.12")


def test_an_old_runtime_lacks_the_newer_function_and_is_not_asked_for_it():
    class Old(FakeCudart):
        def __getattr__(self, name):
            if name == "cudaGraphInstantiateWithFlags":
                raise AttributeError(name)
            return super().__getattr__(name)

    cuda = CudaRuntime(Old(runtime=10020))
    stream = cuda.stream()
    cuda.begin_capture(stream)
    assert cuda.end_capture(stream)
    assert (cuda.version(), cuda.compute_capability(), cuda.device_name()) == (10020, "8.7", "Orin")
