"""Makes the environments that a program has registered with Gymnasium known to its agents.

Agents are separate processes. A registration is sent to them as JSON, with the environment's class
given by module and name. A class from the program's own script is loaded from the script's file,
where `__name__` is then not "__main__", as in child processes of `multiprocessing`.
"""

import functools
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec

SCRIPT = "__ga3c_script__"
"""The module name that an agent gives to the program's script."""
TUPLE = "__tuple__"
"""The only key of a JSON object that stands for a tuple."""
in_agent = False
"""Whether this process is an agent."""


class NotFound(ValueError):
    """Agents cannot make a registered environment. The message says what to do."""


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
        if _package(spec) in _packages_with_environments() and not spec.additional_wrappers:
            return None  # they are registered in every process
        raise


def take_over(registration: str) -> None:
    """Register an environment from another process, first loading the program if it defines it.

    Raises NotFound if the program ends the process.
    """
    values = json.loads(registration)
    if values["program"]:
        sys.argv[:] = values["argv"]  # the program may parse them on import
        _load(values["program"], values["file"])
    spec = _changed(EnvSpec.from_json(values["spec"]), lambda entry: entry, _told)
    gymnasium.registry[spec.id] = spec


def _written(spec: EnvSpec) -> str:
    """The registration as JSON. Raises NotFound."""
    told = _changed(spec, lambda entry: _named(spec, entry), _telling)
    wrappers = (wrapper.entry_point for wrapper in told.additional_wrappers)
    names = (told.entry_point, told.vector_entry_point, *wrappers)
    modules = [str(name).partition(":")[0] for name in names]
    try:
        text = told.to_json()
        back = _changed(EnvSpec.from_json(text), lambda entry: entry, _told)
        if _arguments(back) != _arguments(spec):
            raise ValueError("keys must be text")
    except (TypeError, ValueError) as error:
        raise NotFound(
            f"environment {spec.id}: {error}: its registered arguments must be text, numbers, "
            "lists, tuples and dicts, or they could not be sent to agents, which are separate "
            "processes"
        ) from error
    file = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")
    program = _program()
    known = {"program": program if program in modules else None, "file": file, "argv": sys.argv}
    return json.dumps({"spec": text, **known})


def _changed(
    spec: EnvSpec, name: Callable[[Any], str | None], value: Callable[[Any], Any]
) -> EnvSpec:
    """`spec` with all entry points changed by `name`, and all keyword arguments by `value`."""
    return replace(
        spec,
        entry_point=name(spec.entry_point),
        vector_entry_point=name(spec.vector_entry_point),
        kwargs=value(spec.kwargs),
        additional_wrappers=tuple(
            WrapperSpec(each.name, name(each.entry_point) or "", value(each.kwargs))
            for each in spec.additional_wrappers
        ),
    )


def _arguments(spec: EnvSpec) -> list[Any]:
    """The keyword arguments of the environment and of its wrappers."""
    return [spec.kwargs, *(wrapper.kwargs for wrapper in spec.additional_wrappers)]


def _telling(value: Any) -> Any:
    """`value` with tuples marked, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _telling(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return {TUPLE: [_telling(each) for each in value]}
    return [_telling(each) for each in value] if isinstance(value, list) else value


def _told(value: Any) -> Any:
    """The inverse of `_telling`."""
    if isinstance(value, dict):
        told = {key: _told(each) for key, each in value.items()}
        return tuple(told[TUPLE]) if list(told) == [TUPLE] else told
    return [_told(each) for each in value] if isinstance(value, list) else value


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
    if module in ("__main__", "__mp_main__"):  # the latter in multiprocessing's children
        module = _program() or ""
        if not module:
            raise _not_found(spec, entry)
    return f"{module}:{name}"


def _program() -> str | None:
    """The program's module name in an agent; None if it is a notebook or an interactive session."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec and spec.name != "__main__":  # python -m package.module, not `python folder`
        return spec.name
    return SCRIPT if os.path.isfile(getattr(main, "__file__", None) or "") else None


def _not_found(spec: EnvSpec, entry: Any) -> NotFound:
    return NotFound(
        f"environment {spec.id}: agents, which are separate processes, cannot find {entry!r}, "
        "which is defined in a notebook, in an interactive session or inside something else: put "
        f"it into a module, under a top-level name, or call the game MODULE:{spec.id}, with a "
        "module that registers it on import"
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


def _load(program: str, file: str) -> None:
    """Import the program as a module. Raises NotFound if it ends the process."""
    try:
        if program != SCRIPT:
            importlib.import_module(program)
            return
        loader = SourceFileLoader(SCRIPT, file)
        spec = importlib.util.spec_from_loader(SCRIPT, loader)
        assert spec
        sys.modules[SCRIPT] = importlib.util.module_from_spec(spec)
        loader.exec_module(sys.modules[SCRIPT])
    except SystemExit as error:
        raise NotFound(
            f"agents load {file} for its environment, and it exits ({error}): what only the "
            'program should do belongs under if __name__ == "__main__"'
        ) from error
