"""Make an environment of the Makefile's: a folder, and what each `pip install` in it gets.

    python tools/environment.py .venv "-e .[dev] -c constraints.txt" "--no-deps -r samples.txt"

uv installs several times as fast as pip. It is taken from PATH; else pip fetches it into build/uv, outside of what any
environment imports. Where uv cannot be had, pip installs the same packages.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

#: A setting of pip -> the variable that says the same to uv, which reads none of pip's; lists are parted by a space.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
#: As pip does: the best version of all indexes, not the best of the first index that has the package.
STRATEGY = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
NO_VENV = (
    "This Python lacks the module {}. On Debian or Ubuntu: apt-get install python3-venv. Then run make again."
)


def main(folder: Path, installs: list[list[str]]) -> None:
    """Make the environment in `folder`: with uv, or else with pip."""
    if uv := shutil.which("uv") or fetched(Path("build/uv")):
        try:
            return with_uv(uv, folder, installs)
        except subprocess.CalledProcessError:
            print("uv could not install everything. pip tries the same now.", file=sys.stderr)
    try:
        with_pip(folder, installs)
    except subprocess.CalledProcessError as error:
        sys.exit(f"pip could not install what edgescope needs (exit code {error.returncode}).")


def fetched(folder: Path) -> str:
    """Return uv's path in `folder`, where pip puts it unless it is there; '' if pip cannot."""
    uv = folder / "bin" / "uv"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), "uv"]
    if not uv.exists():
        allowed = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
        subprocess.run(command, env={**os.environ, **allowed}, check=False)
    if uv.exists():
        return str(uv)
    print("pip could not fetch uv. pip installs everything itself, which takes longer.", file=sys.stderr)
    return ""


def with_uv(uv: str, folder: Path, installs: list[list[str]]) -> None:
    """Install with uv; pip itself is put in, too, for what is added by hand later."""
    environment = {**STRATEGY, **settings(), **os.environ}
    venv = [uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", sys.executable, str(folder)]
    subprocess.run(venv, env=environment, check=True)
    for words in installs:
        command = [uv, "pip", "install", "--python", str(folder / "bin" / "python"), *words]
        subprocess.run(command, env=environment, check=True)


def with_pip(folder: Path, installs: list[list[str]]) -> None:
    """Install with pip alone."""
    for module in ("venv", "ensurepip"):
        if find_spec(module) is None:
            sys.exit(NO_VENV.format(module))
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for words in installs:
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *words]
        subprocess.run(command, check=True)


def settings() -> dict[str, str]:
    """Return what pip's configuration and environment say, as variables of uv."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    said = read(listed.stdout.decode())
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            said[name[len("PIP_") :].lower().replace("_", "-")] = value
    variables = {SETTINGS[key]: " ".join(value.split()) for key, value in said.items() if key in SETTINGS}
    if links := variables.get("UV_FIND_LINKS"):
        variables["UV_FIND_LINKS"] = links.replace(" ", ",")
    return variables


def read(listed: str) -> dict[str, str]:
    """Return the settings of `pip config list` that hold for `pip install`: its own before the global ones."""
    said: dict[str, str] = {}
    for section in ("global.", "install."):
        for line in listed.splitlines():
            key, equals, value = line.partition("=")
            if equals and key.startswith(section):
                said[key[len(section) :]] = ast.literal_eval(value)
    return said


if __name__ == "__main__":
    main(Path(sys.argv[1]), [shlex.split(words) for words in sys.argv[2:]])
