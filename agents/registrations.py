"""Makes the environments that a program has registered with Gymnasium known to its agents.

Agents are separate processes. A registration is sent to them as JSON, with the environment's class
as its module and name. A class from the program's own script is loaded from the script's file,
where `__name__` is then not "__main__", as in multiprocessing's processes.
"""

import functools
import importlib.util
import json
import os
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

SCRIPT = "__ga3c_script__"
"""The name of the program's script as a module of an agent."""


class NotFound(ValueError):
    """Agents could not make a registered environment. The message says what to do."""


def handed_over(game: str) -> str | None:
    """The registration of `game` as one line, for `take_over`; None if agents need none.

    Agents need none for Atari games, for `module:Id-v0`, whose module they import, and for an
    unregistered name, which they report themselves. Raises NotFound.
    """
    spec = gymnasium.registry.get(game)
    if spec is None or _package(spec) == "ale_py":
        return None
    try:
        return _written(spec)
    except NotFound:
        if _package(spec) in _packages_with_environments():
            return None
        raise


def take_over(registration: str) -> None:
    """Register an environment from another process. Loads that program's script if needed."""
    values = json.loads(registration)
    if values["script"]:
        _load(values["script"])
    spec = EnvSpec.from_json(values["spec"])
    gymnasium.registry[spec.id] = spec


def _written(spec: EnvSpec) -> str:
    """The registration as JSON. Raises NotFound."""
    names = [_named(spec, entry) for entry in (spec.entry_point, spec.vector_entry_point)]
    uses_script = any(name and name.startswith(f"{SCRIPT}:") for name in names)
    try:
        if json.loads(json.dumps(spec.kwargs)) != _lists(spec.kwargs):
            raise ValueError("keys must be text")
        text = replace(spec, entry_point=names[0], vector_entry_point=names[1]).to_json()
    except (TypeError, ValueError) as error:
        raise NotFound(
            f"environment {spec.id}: {error}: what it is registered with must be text, numbers, "
            "lists and dicts, or agents, which are processes of their own, could not be told"
        ) from error
    script = os.path.abspath(sys.modules["__main__"].__file__ or "") if uses_script else None
    return json.dumps({"spec": text, "script": script})


def _lists(value: Any) -> Any:
    """`value` with tuples replaced by lists, as JSON stores them."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def _named(spec: EnvSpec, entry: Any) -> str | None:
    """An entry point as `module:name` that an agent can import. Raises NotFound."""
    if entry is None:
        return None
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
    else:
        module, name = getattr(entry, "__module__", ""), getattr(entry, "__qualname__", "")
        if getattr(sys.modules.get(module), name, None) is not entry:
            raise _not_found(spec, entry)
    if module == "__main__":
        main = sys.modules["__main__"]
        if getattr(main, "__spec__", None):  # python -m package.module
            assert main.__spec__
            module = main.__spec__.name
        elif os.path.isfile(getattr(main, "__file__", None) or ""):
            module = SCRIPT
        else:
            raise _not_found(spec, entry)
    return f"{module}:{name}"


def _not_found(spec: EnvSpec, entry: Any) -> NotFound:
    return NotFound(
        f"environment {spec.id}: agents, which are processes of their own, cannot find {entry!r}, "
        "which is defined in a notebook, in an interactive session or within something else: put "
        "it into a module, and import it"
    )


def _package(spec: EnvSpec) -> str:
    """The top-level package that defines the environment; empty if it is unknown."""
    entry = spec.entry_point or spec.vector_entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return module.replace(":", ".").partition(".")[0]


@functools.cache
def _packages_with_environments() -> set[str]:
    """The packages whose environments Gymnasium registers in every process."""
    plugins = (plugin.module.partition(".")[0] for plugin in entry_points(group="gymnasium.envs"))
    return {"gymnasium", *plugins}


def _load(script: str) -> None:
    loader = SourceFileLoader(SCRIPT, script)
    spec = importlib.util.spec_from_loader(SCRIPT, loader)
    assert spec
    sys.modules[SCRIPT] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules[SCRIPT])
