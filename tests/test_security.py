"""What SECURITY.md promises about the whole source, and about the names of runs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, refused

SOURCES = [file for place in ("agents", "ga3c") for file in sorted((ROOT / place).rglob("*.py"))]
MODULES = {"pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "code", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {"recv_pyobj", "send_pyobj", "load_model", "system", "popen", "model_from_json"}


def runs_code(tree: ast.AST) -> Iterator[str]:
    """The parts of a module that could run code that comes as data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in CALLS:
                yield called.id
            if isinstance(called, ast.Attribute) and called.attr in METHODS:
                yield called.attr
            for each in node.keywords:
                if each.arg in ("shell", "allow_pickle") and not is_false(each.value):
                    yield f"{each.arg}={ast.unparse(each.value)}"


def is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_unpickled_or_evaluated(file: Path) -> None:
    assert list(runs_code(ast.parse(file.read_text()))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from cloudpickle import loads",
        "eval(text)",
        "socket.recv_pyobj()",
        "np.load(file, allow_pickle=True)",
        "subprocess.run(line, shell=True)",
        "keras.models.load_model(path)",
    ],
)
def test_calls_that_could_run_code_are_detected(code: str) -> None:
    assert list(runs_code(ast.parse(code)))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/tmp/x", "..", "."])
def test_a_run_s_name_cannot_leave_the_folder_of_runs(name: str, tmp_path: Path) -> None:
    line = refused(
        "train", "--game", "CartPole-v1", "--runs-dir", str(tmp_path / "runs"), "--name", name
    )
    assert repr(name) in line and "would be written elsewhere" in line
    assert list(tmp_path.iterdir()) == []
