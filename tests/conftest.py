"""One cache for the whole session, and the models that several test files share."""

import os
import signal

import pytest


def pytest_configure() -> None:
    """Take Ctrl-C as usual: a shell ignores it for what runs in the background, and so would what tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """A cache of this session's own, inherited by every process that a test starts."""
    before = os.environ.get("EDGESCOPE_CACHE")
    os.environ["EDGESCOPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield os.environ["EDGESCOPE_CACHE"]
    if before is None:
        del os.environ["EDGESCOPE_CACHE"]
    else:
        os.environ["EDGESCOPE_CACHE"] = before


def session_of(path):
    """ONNX Runtime on a file, as a function of one batch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, dict(batch))


@pytest.fixture(scope="session")
def open_onnx():
    return session_of


@pytest.fixture(scope="session")
def artifacts(cache_folder):
    from edgescope import cache

    return cache.folder("artifacts")


@pytest.fixture(scope="session")
def trained():
    """The really trained classifier."""
    from edgescope.models import zoo

    return zoo.get("efficientnet_lite0")


@pytest.fixture(scope="session")
def untrained():
    """A small network with random weights."""
    from edgescope.models import zoo

    return zoo.get("squeezenet1_1")


@pytest.fixture(scope="session")
def trained_truth(trained, artifacts):
    """fp32 outputs of the trained classifier on the gate's frames and the labelled photographs."""
    from edgescope import reference

    return reference.reference(trained, lambda: session_of(trained.onnx(artifacts)))


@pytest.fixture(scope="session")
def untrained_truth(untrained, artifacts):
    from edgescope import reference

    return reference.reference(untrained, lambda: session_of(untrained.onnx(artifacts)))
