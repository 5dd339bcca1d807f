"""What must stay between a user and a server: the key, in whatever a run writes, and the line, if it is encrypted."""

import subprocess
import sys
from pathlib import Path

import pytest

from edgescope.backends.base import Spec
from edgescope.cli.main import main
from edgescope.errors import UnavailableError
from edgescope.wings.generation.endpoint import Endpoint
from edgescope.wings.generation.engine import Request
from edgescope.wings.generation.openai import OpenAi

pytestmark = pytest.mark.process
PROGRAM = Path(__file__).parents[2] / "llm_server.py"
KEY = "sk-do-not-tell-4711"


@pytest.fixture
def serve():
    """Start servers that end with the test; give their URLs."""
    running = []

    def started(*words):
        process = subprocess.Popen([sys.executable, PROGRAM, *words], stdout=subprocess.PIPE, text=True)
        running.append(process)
        return f"://127.0.0.1:{process.stdout.readline().split()[-1]}/v1"

    yield started
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def _written(folder):
    """Yield every file below a folder, with its bytes; of a compressed one also what it holds."""
    import gzip
    import zipfile

    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield path, data
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as held:
                    yield from ((path, held.read(name)) for name in held.namelist())
            elif data[:2] == b"\x1f\x8b":
                yield path, gzip.decompress(data)


@pytest.mark.slow
def test_nothing_that_a_run_writes_holds_the_key(serve, tmp_path, monkeypatch, capfd):
    url = f"http{serve('--behaviour', 'tells_key')}"
    for variable in ("OPENAI_API_KEY", "EDGESCOPE_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = ["--workload", "generate", "--workload-option", "output_tokens=8"]
    words += ["--duration", "0.3", "--store", str(tmp_path / "store")]
    assert main(["bench", url, *words]) == 0
    main(["bench", url, *words, "--json", "-v"])
    for more in (["list"], ["show", "latest"], ["show", "latest", "--json"]):
        main([*more, "--store", str(tmp_path / "store")])
    for name in ("a.html", "a.md", "a.csv"):
        main(["report", "--store", str(tmp_path / "store"), "--output", str(tmp_path / name)])
    said = capfd.readouterr()
    assert "(the key)" in b"".join(data for _, data in _written(tmp_path)).decode("utf-8", "replace")
    assert KEY not in said.out + said.err
    assert [path for path, data in _written(tmp_path) if KEY.encode() in data] == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that its own key signed, for 127.0.0.1."""
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    try:
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"]
        subprocess.run([*made.split(), *names], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate")
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def _session(url):
    spec = Spec("as_is", options={"quiet": 5}, device="server")
    return OpenAi().load(OpenAi().prepare(Endpoint(url), spec, Path()))


def test_a_certificate_that_nobody_vouches_for_is_refused(serve, certificate):
    with pytest.raises(UnavailableError) as refused:
        _session(f"https{serve('--certificate', str(certificate))}")
    assert refused.value.code == "E-URL-5" and "CERTIFICATE_VERIFY_FAILED" in str(refused.value)


def test_answers_come_over_an_encrypted_line(serve, certificate, monkeypatch):
    url = f"https{serve('--certificate', str(certificate))}"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    session = _session(url)
    got = [session.generate(Request((), "hello there you", 12)) for _ in range(2)]
    session.close()
    assert [(g.output_tokens, list(g.counts)) for g in got] == [(12, [1] * 12)] * 2


def test_a_certificate_for_another_host_is_refused(serve, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(UnavailableError) as refused:
        _session(f"https{serve('--certificate', str(certificate))}".replace("127.0.0.1", "localhost"))
    assert refused.value.code == "E-URL-5"


def test_a_server_without_encryption_is_no_encrypted_one(serve):
    with pytest.raises(UnavailableError):
        _session(f"https{serve()}")
