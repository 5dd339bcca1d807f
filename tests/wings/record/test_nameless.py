"""What names a machine, its owner or its network is taken out of every text, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.records import Machine
from edgescope.wings.record.nameless import Names, of_nobody
from fake_board import write

FILES = {
    "proc/sys/kernel/hostname": "annas-robot-7\n",
    "proc/device-tree/serial-number": "1423919087654\0",
    "proc/cpuinfo": "processor\t: 0\nSerial\t\t: 00000000deadbeef\n",
    "etc/machine-id": "3d1219c7c4c5404aaa1f6d2a48adfda4\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nlp:x:7:7:lp:/:/x\nanna_k:x:1000:1000:Anna Kowalska,,,:/home/a:/b\n",
    "sys/class/net/eth0/address": "48:b0:2d:5e:77:1a\n",
    "sys/class/net/dummy/address": "00:00:00:00:00:00\n",
    "sys/bus/usb/devices/1-2/serial": "A1B2C3D4\n",
    "sys/block/mmcblk0/device/cid": "150100424a4e42345207d1f2a3b4c5d6\n",
    "proc/net/fib_trie": "Main:\n  |-- 10.13.37.0\n  |-- 10.13.37.42\n  |-- 127.0.0.1\n",
    "proc/net/if_inet6": "fe80000000000000025056fffec00008 02 40 20 80 eth0\n",
}
WORDS = {
    "annas-robot-7": "host",
    "1423919087654": "serial",
    "00000000deadbeef": "serial",
    "3d1219c7c4c5404aaa1f6d2a48adfda4": "serial",
    "anna_k": "user",
    "Anna Kowalska": "user",
    "48:b0:2d:5e:77:1a": "address",
    "A1B2C3D4": "serial",
    "150100424a4e42345207d1f2a3b4c5d6": "serial",
    "10.13.37.0": "address",
    "10.13.37.42": "address",
    "fe80:0000:0000:0000:0250:56ff:fec0:0008": "address",
}


def test_the_words_are_those_of_the_machines_files():
    assert Names.of(FILES).words == WORDS


def test_this_machine_is_read_below_a_root_with_who_is_logged_in_and_from_where(tmp_path):
    environ = {"USER": "anna_k", "SUDO_USER": "bo.l", "HOME": "/home/ann", "LOGNAME": "root"}
    environ["SSH_CONNECTION"] = "192.168.7.9 50122 10.13.37.42 22"
    found = Names.here(write(tmp_path, FILES), environ).words
    assert found == WORDS | {"bo.l": "user", "ann": "user", "192.168.7.9": "address"}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("anna_k's log on annas-robot-7", "<user>'s log on <host>"),
        ("ANNAS-ROBOT-7.local", "<host>.local"),
        ("banna_kx stays", "banna_kx stays"),
        ("ssh: connect to host 10.0.0.5 port 22", "ssh: connect to host <address> port 22"),
        ("ssh://anna_k@jetson:2222?python=/usr/bin/python3", "ssh://<board>?python=/usr/bin/python3"),
        ("root@192.168.1.2: Permission denied", "<user>@<host>: Permission denied"),
        ("from 172.16.4.1", "from <address>"),
        ("10.1.2.3:8554 refused", "<address>:8554 refused"),
        ("10.13.37.42", "<address>"),
        ("TensorRT 10.7.0.23, 8.2.1.8 and 1.7.1.116", "TensorRT 10.7.0.23, 8.2.1.8 and 1.7.1.116"),
        ("L4T 36.4.4, CUDA 12.6.68", "L4T 36.4.4, CUDA 12.6.68"),
        ("/home/someone/net.onnx: no such file", "~/net.onnx: no such file"),
        ("in /root/.cache", "in ~/.cache"),
        ("/usr/src/tensorrt/bin", "/usr/src/tensorrt/bin"),
        ("GPU-1a2b3c4d-1111-2222-3333-444455556666", "<serial>"),
        ("at 0a:1b:2c:3d:4e:5f", "at <address>"),
        ("fe80::250:56ff:fec0:8 is up", "<address> is up"),
        ("12:34:56 1420 of 1423919087654", "12:34:56 1420 of <serial>"),
        ("sha256 of std::vector", "sha256 of std::vector"),
    ],
)
def test_a_text_keeps_all_but_what_names_somebody(text, plain):
    assert Names.of(FILES).plain(text) == plain


def test_what_many_machines_are_called_stays():
    files = {
        "proc/sys/kernel/hostname": "ubuntu\n",
        "etc/passwd": "nvidia:x:1000:1000::/home/nvidia:/bin/sh\n",
    }
    assert Names.of(files).words == {}
    assert Names.of(files).plain("nvidia-smi on ubuntu 22.04") == "nvidia-smi on ubuntu 22.04"


def test_values_at_any_depth_change_and_keys_do_not():
    found = Names.of(FILES).without({"anna_k": ["anna_k", {"a": ("on annas-robot-7", 3, None)}]})
    assert found == {"anna_k": ["<user>", {"a": ["on <host>", 3, None]}]}


def test_what_is_left_in_a_text_is_told_by_its_kind():
    names = Names.of(FILES)
    assert names.left("fine <user>") == []
    assert names.left('{"anna_k": "A1B2C3D4"}') == ["serial", "user"]


def test_facts_that_name_a_machine_are_left_out():
    found = of_nobody(Machine({"cpu": {"board": "Orin #A1b2"}}, {"hostname": "h", "cpu": {"serial": 1}}))
    assert found.stable == {"cpu": {"board": "Orin"}}
    assert all("absent" in x for x in (found.state["hostname"], found.state["cpu"]["serial"]))


@given(st.text(max_size=40), st.sampled_from(sorted(WORDS)), st.text(max_size=40))
def test_no_word_is_left_whatever_stands_around_it(before, word, after):
    names = Names.of(FILES)
    assert names.left(names.plain(f"{before} {word} {after}")) == []
