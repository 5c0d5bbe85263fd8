"""Version ranges, locks, make targets and the separation of the two packages are consistent."""

import ast
import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agents.extras import missing
from tests.commands import hear_signals

ROOT = Path(__file__).resolve().parents[1]
FLAVOURS = {"tensorflow", "tensorflow-cpu"}
NEVER_ON_AN_AGENT = {"tensorflow", "keras", "ga3c"}


def read_pins(name: str) -> dict[str, Requirement]:
    """The `name==version` lines of a requirements file, without its options and comments."""
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {canonicalize_name(pin.name): pin for pin in pins}


def needs(name: str) -> list[Requirement]:
    """What a package requires on this platform, without extras. Raises PackageNotFoundError."""
    found = [Requirement(line) for line in requires(name) or []]
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


def read_setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


def read_ranges(section: str, key: str) -> list[Requirement]:
    return [Requirement(line) for line in read_setup()[section][key].split("\n") if line]


def pinned_version(pin: Requirement) -> str:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", f"{pin} is not pinned: the next install may differ"
    return specifier.version


def run_make(
    *arguments: str, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run make without the variables that an outer `make test ARGS=...` hands down."""
    handed_down = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS", "DEVICE"}
    inherited = {k: v for k, v in os.environ.items() if k not in handed_down}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


STOPPED = """#!{python} -S
import os, signal, sys, time
if "--wrong" in sys.argv:
    sys.exit(2)
def end(number, frame):
    os.write(1, b"kept %d\\n" % number)  # a print may be going on
    os._exit(130)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
print("begun", *sys.argv[1:], flush=True)
time.sleep(60)
"""


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Runs `make train` of the real Makefile, with a stand-in that ends as ga3c does."""
    command = tmp_path / "ga3c"
    command.write_text(STOPPED.format(python=sys.executable))
    command.chmod(0o755)

    def start(arguments: str, **variables: str) -> subprocess.Popen[str]:
        given = [f"BIN={tmp_path}", f"STAMP={command}", "DEVICE=cpu", f"ARGS={arguments}"]
        given += [f"{name}={value}" for name, value in variables.items()]
        return subprocess.Popen(
            ["make", "--no-print-directory", "train", *given],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=hear_signals,
        )

    return start


def test_ctrl_c_ends_make_train_by_the_signal_and_without_a_line_of_makes_own(train):
    """A shell reports an end by SIGINT as exit code 130."""
    made = train("--steps 5", GAME="Boxing")
    assert made.stdout.readline() == "begun train --game Boxing --steps 5\n"
    os.killpg(made.pid, signal.SIGINT)
    out, err = made.communicate(timeout=30)
    assert (made.returncode, out, err) == (-signal.SIGINT, f"kept {signal.SIGINT:d}\n", "")


def test_a_make_that_runs_after_all_that_it_started_ends_by_the_signal_too(train):
    """As on a busy machine: the run and its shell have ended before make sees the signal."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        pytest.skip("no real-time priority for this user")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        made = train("")
        assert made.stdout.readline() == "begun train\n"
        for child in psutil.Process(made.pid).children(recursive=True):
            os.sched_setscheduler(child.pid, os.SCHED_FIFO, os.sched_param(1))
        os.killpg(made.pid, signal.SIGINT)
        out, err = made.communicate(timeout=30)
    finally:
        os.sched_setaffinity(0, cores)
    assert (made.returncode, out, err) == (-signal.SIGINT, f"kept {signal.SIGINT:d}\n", "")


def test_a_sigterm_that_make_alone_gets_ends_the_run(train):
    """No GAME is given, so there is no --game: a file, preset or run in ARGS may name the game."""
    made = train("--config mine.toml")
    assert made.stdout.readline() == "begun train --config mine.toml\n"
    made.terminate()
    out, _ = made.communicate(timeout=30)  # waits for the run too, which holds the pipe
    assert (made.returncode, out) == (-signal.SIGTERM, f"kept {signal.SIGTERM:d}\n")


def test_a_wrong_use_of_make_train_is_an_error_of_make(train):
    made = train("--wrong")
    out, err = made.communicate(timeout=30)
    assert (made.returncode, out) == (2, "")
    assert err.splitlines()[-1].endswith("train] Error 2")


def test_make_calls_no_installed_script_but_ga3c():
    """After a move only ga3c is installed again, so other packages are called by python -m."""
    made = run_make("-n", "tensorboard", "check", "docs", "test", "play", "train").stdout
    scripts = set(re.findall(r"\.venv(?:-docs)?/bin/([\w.-]+)", made))
    assert scripts == {"ga3c", "python"}


def test_make_tensorboard_shows_the_runs_on_this_machine_only():
    made = run_make("-n", "tensorboard").stdout
    assert re.search(r"tensorboard\.main .*--host 127\.0\.0\.1(\s|$)", made)
    assert "bind_all" not in made


def helped_targets() -> list[str]:
    return re.findall(r"^  ([a-z-]+) ", run_make("help").stdout, re.MULTILINE)


def test_one_version_is_declared_cited_and_described() -> None:
    version = read_setup()["metadata"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] in {version, "Unreleased"}


@pytest.mark.parametrize(
    ("section", "key", "locks"),
    [
        ("options", "install_requires", ["lock.txt"]),
        ("options.extras_require", "dev", ["lock.txt"]),
        ("options.extras_require", "jax", ["lock.txt"]),
        ("options.extras_require", "control", ["lock.txt"]),
        ("options.extras_require", "cpu", ["cpu.txt"]),
        ("options.extras_require", "gpu", ["gpu.txt"]),
        ("options.extras_require", "docs", ["docs.txt"]),
    ],
)
def test_pinned_versions_satisfy_the_declared_ranges(section, key, locks):
    pins = {name: pin for lock in locks for name, pin in read_pins(lock).items()}
    for declared in read_ranges(section, key):
        pin = pins[canonicalize_name(declared.name)]
        assert declared.specifier.contains(pinned_version(pin)), f"{pin} is outside {declared}"
        assert declared.extras == pin.extras


@pytest.mark.parametrize("lock", ["lock.txt", "cpu.txt", "gpu.txt", "docs.txt"])
def test_every_line_of_a_lock_is_an_exact_version(lock):
    for pin in read_pins(lock).values():
        pinned_version(pin)


def test_the_lock_can_be_a_file_of_constraints():
    """gpu-check.txt uses it as one. pip refuses constraints that have extras."""
    assert not [pin for pin in read_pins("lock.txt").values() if pin.extras]
    assert read_pins("gpu-check.txt").keys() <= read_pins("lock.txt").keys()


def test_the_lock_names_no_tensorflow_and_each_flavour_builds_on_it():
    assert not FLAVOURS & read_pins("lock.txt").keys()
    for flavour in ("cpu.txt", "gpu.txt"):
        assert "-r lock.txt" in (ROOT / "requirements" / flavour).read_text().splitlines()


def test_the_lock_names_what_its_packages_need():
    """A package that the lock leaves out would be installed at whatever version is newest."""
    locked = read_pins("lock.txt")
    for name in [*locked, "tensorflow-cpu"]:
        try:
            needed = needs(name)
        except PackageNotFoundError:
            assert name in FLAVOURS, f"{name} is locked but not installed: run make install"
            continue
        for requirement in needed:
            pin = locked.get(canonicalize_name(requirement.name))
            assert pin is not None, f"{name} needs {requirement}, which lock.txt leaves out"
            assert requirement.specifier.contains(pinned_version(pin), prereleases=True)


def test_tensorflow_is_only_ever_an_extra():
    assert not FLAVOURS & {r.name for r in read_ranges("options", "install_requires")}


def test_pyproject_describes_tools_and_setup_cfg_the_package():
    assert "project" not in tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert read_setup()["metadata"]["name"] == "ga3c"


def test_every_directory_of_code_is_a_package_that_would_be_installed():
    for top in ("agents", "ga3c"):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), f"{module} would be left out"


def test_help_lists_every_target_and_each_exists():
    (declared,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert helped_targets() == declared.split()
    for target in helped_targets():
        dry = run_make("--dry-run", target)
        assert dry.returncode == 0, dry.stderr


def test_an_unknown_device_is_refused_in_one_line():
    refused = run_make("help", "DEVICE=tpu")
    assert refused.returncode == 2
    assert 'DEVICE is "tpu", must be cpu or gpu' in refused.stderr


def test_a_check_of_a_gpu_without_its_wheels_says_how_to_get_them(tmp_path):
    refused = run_make("gpu-check", f"WHEELS={tmp_path}")
    assert refused.returncode == 2
    assert f"no wheels in {tmp_path}: pip download --no-deps -r requirements/" in refused.stderr


def test_make_install_without_a_new_enough_python_fails_with_a_clear_message(tmp_path):
    for copied in ("Makefile", "setup.cfg"):
        shutil.copy(ROOT / copied, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("make", "cat", "cksum", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")  # answers like an older Python
    (tools / "python3").chmod(0o755)

    refused = run_make("install", "DEVICE=cpu", cwd=tmp_path, PATH=str(tools))

    assert refused.returncode == 2
    assert refused.stderr.startswith("no python3.11, and no python3 of 3.11 or later, on PATH")
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        (None, "going on with an installation that was not finished"),
        (".installed-cpu-1", "they have changed"),
    ],
)
def test_make_install_says_why_it_installs_again_and_that_it_takes_minutes(
    tmp_path: Path, stamp: str | None, reason: str
) -> None:
    for copied in ("Makefile", "setup.cfg"):
        shutil.copy(ROOT / copied, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")  # has pip, and installs nothing
    python.chmod(0o755)
    if stamp:
        (tmp_path / ".venv" / stamp).touch()

    made = run_make("install", "DEVICE=cpu", cwd=tmp_path)

    assert made.stdout.splitlines() == [
        "installing pinned versions for cpu into .venv "
        f"({reason}, one to three minutes without output)",
        ".venv is ready (cpu)",
    ]
    assert len(list((tmp_path / ".venv").glob(".installed-*"))) == 1
    assert run_make("install", "DEVICE=cpu", cwd=tmp_path).stdout == ".venv is ready (cpu)\n"


def test_nothing_tells_users_to_get_ga3c_from_a_package_index():
    """It is on none, where anybody could register the name."""
    line = missing("wandb", "wandb")
    assert line.endswith(f"run {sys.executable} -m pip install -e '.[wandb]'")
    told = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for top in ("agents", "ga3c", "benchmarks"):
        told += (ROOT / top).rglob("*.py")
    assert not [file for file in told if "ga3c[" in file.read_text()]


def imported_names(source: str) -> set[str]:
    """The top-level packages that a module imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def test_agents_name_nothing_of_the_device_side():
    modules = sorted((ROOT / "agents").rglob("*.py"))
    assert modules
    for module in modules:
        forbidden = imported_names(module.read_text()) & NEVER_ON_AN_AGENT
        assert not forbidden, f"{module} imports {forbidden}: agents must start without it"


def test_importing_every_agents_module_loads_nothing_of_the_device_side():
    program = f"""
import importlib, pkgutil, sys, agents
for module in pkgutil.walk_packages(agents.__path__, "agents."):
    importlib.import_module(module.name)
print(*({NEVER_ON_AN_AGENT!r} & sys.modules.keys()))
"""
    imported = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.strip() == ""


def test_without_a_checkout_studies_are_refused_as_missing(tmp_path: Path) -> None:
    """An installation has the packages `agents` and `ga3c`, but not `benchmarks`."""
    for package in ("agents", "ga3c"):
        shutil.copytree(
            ROOT / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__"),  # another test may be writing there
        )
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    program += "from ga3c.__main__ import program; program()"
    command = [sys.executable, "-P", "-c", program, str(tmp_path), "benchmark"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for name, words in (
        ("sweep", "must be limits or throughput; the others are in a checkout of ga3c only"),
        ("limits", "unknown game"),
    ):
        arguments = [*command, name, "--game", "no-such"]
        done = subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
