import hashlib
import subprocess
import sys

import pytest

from edgescope.errors import UsageError
from edgescope.wings.remote import address, wire
from edgescope.wings.remote.address import Address, parse


def test_an_address_names_user_host_and_port():
    assert parse("ssh://user@nano") == Address("nano", "user")
    assert parse("ssh://nano:2222") == Address("nano", "", 2222)
    assert str(parse("ssh://user@nano:2222/?python=/usr/bin/python3.8")) == "ssh://user@nano:2222"
    assert parse("ssh://nano?python=/usr/bin/python3.8").python == "/usr/bin/python3.8"


@pytest.mark.parametrize(
    "text",
    [
        "nano",
        "user@nano",
        "http://nano",
        "ssh://",
        "ssh://nano/folder",
        "ssh://nano:99999",
        "ssh://nano?port=2",
        "ssh://-oProxyCommand=x",
        "ssh://-lroot@nano",
        "ssh://[",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match=r"E-SSH-1.*--on ssh://user@nano"):
        parse(text)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(UsageError) as caught:
        parse("ssh://user:secret@nano")
    assert "secret" not in str(caught.value)


def test_ssh_asks_nothing_and_gives_up(monkeypatch):
    monkeypatch.delenv(address.SSH, raising=False)
    argv = parse("ssh://user@nano:2222").argv()
    assert argv[0] == "ssh"
    assert {"BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=5"} <= set(argv)
    assert argv[argv.index("-l") + 1 : argv.index("-l") + 2] == ["user"]
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[-3:-1] == ["--", "nano"]
    assert "'" not in address.BOOTSTRAP  # a shell of any kind is given it between single quotes
    monkeypatch.setenv(address.SSH, "ssh -F config")
    assert parse("ssh://nano").argv()[:3] == ["ssh", "-F", "config"]


def test_another_python_and_another_agent():
    assert parse("ssh://nano?python=/opt/my python").command().startswith("exec '/opt/my python' -u -c ")
    assert parse("ssh://nano?agent=/usr/local/bin/agent").command() == "/usr/local/bin/agent"


def boot(first_line, source):
    done = subprocess.run(
        [sys.executable, "-u", "-c", address.BOOTSTRAP],
        input=first_line + source,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.process
def test_the_bootstrap_becomes_the_agent_that_was_sent():
    source = wire.agent_source()
    code, said = boot(f"{len(source)} {wire.agent_digest()}\n".encode(), source + b'{"id":1,"verb":"ping"}\n')
    assert (code, said[:12]) == (0, b'{"id":1,"ok"')


@pytest.mark.process
def test_the_bootstrap_does_not_run_what_was_damaged():
    source = b"print('never')"
    assert boot(f"{len(source)} {'0' * 64}\n".encode(), source) == (address.DAMAGED, b"")
    cut = hashlib.sha256(source).hexdigest()
    assert boot(f"{len(source) + 5} {cut}\n".encode(), source) == (
        0,
        b"never\n",
    )  # whole, though announced longer
    assert boot(f"{len(source)} {cut}\n".encode(), source[:-1]) == (address.DAMAGED, b"")
