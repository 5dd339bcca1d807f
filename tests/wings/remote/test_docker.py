"""The images of docker/: their wheel, their packages, every line of their Dockerfiles and of their commands.

None has been built: there is no Docker daemon where these tests run.
"""

import functools
import json
import re
import shlex
import subprocess
import sys
import zipfile

import pytest

import docker_images as images
import small_board
from edgescope.wings.doctor import unlock
from edgescope.wings.jetson import boards

FILES = sorted(images.FOLDER.glob("Dockerfile.*"))
WHOLE = [path for path in FILES if "src" in images.copied(path)]
README = (images.FOLDER / "README.md").read_text()
BLOCK = re.compile(r"```sh\n(docker run .*?)\n```", re.DOTALL)
COMMANDS = BLOCK.findall(README)
NAMES = [image.name for image in images.images()]


# -- the images and the page ---------------------------------------------------------------------------------------


def test_the_page_is_what_the_table_says():
    now = images.between(README, images.BEGIN, images.END, images.render())
    assert now == README, "run: python tests/docker_images.py docker/README.md"
    assert "**Checked, not built**" in README


@pytest.mark.parametrize("image", images.images(), ids=NAMES)
def test_an_images_name_says_what_it_can_do_and_for_which_release(image):
    assert image.file == f"Dockerfile.{image.can}" and f"* **{image.can}**:" in README
    release = re.fullmatch(r"(?:r(\d+)|any)(-torch)?", image.name.partition(":")[2])
    assert bool(release[2]) == (image.can == "agent" and image.torch == "base")
    assert release[1] is None or boards.jetpack_series(f"{release[1]}.0.0")
    assert re.fullmatch(r"[\w./-]+:[\w.-]+", image.base) and not image.base.endswith(":latest")
    whole = tuple(map(int, image.python.split("."))) >= (3, 10)  # what edgescope itself needs
    assert (image.can != "agent") == whole == bool(images.extras(image))
    assert (image.can == "everything") == ("video" in images.extras(image) or images.extras(image) == "all")


def test_every_release_that_jetpack_has_is_there_and_every_dockerfile_has_an_image():
    assert {image.file for image in images.images()} == {path.name for path in FILES}
    told = set(re.findall(r"^\* \*\*(\w+)\*\*:", README, re.MULTILINE))
    assert {image.can for image in images.images()} == told
    assert {"r32", "r35", "r36", "r38", "r39", "any"} == {
        name.partition(":")[2].removesuffix("-torch") for name in NAMES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_the_base_that_a_dockerfile_has_by_itself_is_that_of_the_name_in_its_command(path):
    default = next(rest for word, rest in images.instructions(path) if word == "ARG").partition("=")[2]
    (told,) = re.findall(rf"docker/{path.name} -t ([\w:-]+) \.", path.read_text())
    assert default == next(image.base for image in images.images() if image.name == told)
    others = set(re.findall(r"--build-arg BASE=(\S+)", path.read_text()))
    assert others <= {image.base for image in images.images() if image.file == path.name}


# -- the Dockerfiles, line by line ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_form(path):
    found = images.instructions(path)
    words = [word for word, _ in found]
    assert words[:2] == ["ARG", "FROM"] and words.count("FROM") == 1
    assert found[1].rest == "${BASE}"
    assert set(words) <= {
        "ARG",
        "FROM",
        "RUN",
        "COPY",
        "ENV",
        "USER",
        "ENTRYPOINT",
        "CMD",
    }  # ADD fetches and unpacks
    assert not re.search(r"curl|wget|https?://", " ".join(rest for _, rest in found))
    assert [rest for word, rest in found if word == "USER"] == ["edgescope"]
    assert words.index("USER") < words.index("ENTRYPOINT")


@pytest.mark.process
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_every_line_can_be_read(path):
    for word, rest in images.instructions(path):
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)  # reads, and runs nothing
            assert "apt-get install" not in rest or (
                "apt-get update" in rest and "rm -rf /var/lib/apt/lists/*" in rest
            )
        elif word in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(item, str) for item in json.loads(rest))
        elif word in ("ENV", "ARG"):
            assert all(re.fullmatch(r"\w+=\S+", item) for item in shlex.split(rest))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.suffix[1:])
def test_what_is_copied_is_there(path):
    assert [name for name in images.copied(path) if not (images.ROOT / name).exists()] == []


def test_the_agents_entry_is_the_file_that_was_copied():
    found = dict(images.instructions(images.FOLDER / "Dockerfile.agent"))
    source, target = found["COPY"].split()
    assert source.endswith("edgescope_agent.py") and json.loads(found["ENTRYPOINT"])[-1] == target


def test_the_build_of_nvidias_pytorch_ends_where_a_package_has_replaced_it():
    text = next(
        rest
        for word, rest in images.instructions(images.FOLDER / "Dockerfile.everything")
        if "import torch" in rest
    )
    before, after = text.index("before=$("), text.index("after=$(")
    assert before < text.index("pip install") < after < text.index('test "$before" = "$after"')
    assert '"numpy==$numpy"' in text


# -- what is installed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] * bool(i)) for i, p in enumerate(WHOLE)],
    ids=[p.suffix[1:] for p in WHOLE],
)
def test_a_wheel_is_built_from_what_is_copied(path, tmp_path):
    names = zipfile.ZipFile(images.wheel(path, tmp_path)).namelist()
    assert {"edgescope/cli/main.py", "edgescope/messages.toml", "edgescope/docs/messages.md"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_a_wheel_is_not_built_where_a_folder_is_not_copied(tmp_path, monkeypatch):
    few = [name for name in images.copied(WHOLE[0]) if name != "docs"]
    monkeypatch.setattr(images, "copied", lambda path: few)
    with pytest.raises(FileNotFoundError, match="docs"):
        images.wheel(WHOLE[0], tmp_path)


def kinds():
    """The images of which pip resolves each another set."""
    rows = {}
    for image in images.images():
        for arch in image.arch if images.extras(image) else ():
            rows.setdefault((image.python, image.glibc, arch, images.extras(image)), (image, arch))
    return list(rows.values())


@functools.cache
def offline():
    """Why pip finds no package here, or ''."""
    command = (sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed")
    done = subprocess.run(
        [*command, "--retries=0", "flatbuffers"], capture_output=True, text=True, check=False
    )
    return f"pip reaches no index: {done.stderr[-200:]}" if done.returncode else ""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("image", "arch"), kinds(), ids=lambda v: getattr(v, "name", v))
def test_the_packages_of_an_image_are_to_be_had_for_its_python_and_processor(image, arch, tmp_path):
    if offline():
        pytest.skip(offline())
    found = images.resolved(image, arch, images.wheel(images.FOLDER / image.file, tmp_path))
    assert {"onnxruntime", "openvino", "ai-edge-litert"} <= found.keys()
    assert ("torch" in found) == (
        image.torch == "pip"
    )  # where it is NVIDIA's it stays, and its NumPy with it
    assert ("numpy" in found) == (image.torch != "base")
    assert ("av" in found) == ("timm" in found) == (image.can == "everything")


# -- the commands --------------------------------------------------------------------------------------------------

FLAGS = ("-v", "--security-opt", "--runtime", "--gpus", "--device", "-e", "--shm-size")
DISPLAY = {"-e DISPLAY", "-v /tmp/.X11-unix:/tmp/.X11-unix"}


def flags(command):
    """The arguments of `docker run` that show the machine: `--x y` and `--x=y` as the doctor prints them."""
    words, found = shlex.split(command)[2:], set()
    while words:
        word = words.pop(0)
        if word in FLAGS:
            word = f"{word} {words.pop(0)}"
        elif not word.startswith("-"):
            break
        found.add(word)
    return {f for f in found if f not in ("--rm", "-i", "-it") and not f.startswith("-v edgescope-")}


def jetson_host(tmp_path, camera):
    root = small_board.orin(tmp_path)
    files = {"etc/nvpmodel.conf": "", "var/lib/nvpmodel/status": ""}
    if camera:
        node = "sys/class/video4linux/video0"
        files |= {f"{node}/index": "0\n", f"{node}/name": "vi-output, imx219 9-0010\n"}
        files |= {"dev/video0": "", "tmp/argus_socket": ""}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("command", "camera"),
    list(zip(COMMANDS[:3], (False, False, True), strict=True)),
    ids=["r32", "r36", "camera"],
)
def test_the_jetson_commands_have_the_flags_that_the_doctor_names(command, camera, tmp_path):
    """What doctor says on a constructed Jetson, and /sys, which it asks for only where it is missing."""
    said = {flag.flag for flag in unlock.flags(jetson_host(tmp_path, camera))}
    shown = DISPLAY | {"--shm-size 2g"} if camera else set()
    assert flags(command) == said | {"-v /sys:/sys:ro"} | shown
    assert camera == ("--device /dev/video0" in said)


def test_each_flag_is_explained_and_each_command_runs_an_image():
    assert len(COMMANDS) == 4
    for command in COMMANDS:
        assert any(name in shlex.split(command) for name in NAMES)
        for flag in flags(command) - {"--gpus all"}:
            assert f"| `{flag}` |" in README
