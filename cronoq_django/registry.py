"""What this process knows to run: scripts (task functions by name) and the jobs that code declares.

Rows name scripts; only what is registered here, or is a Task found in an installed app's package under that name, ever
runs. Nothing in a row is imported blindly.
"""

import hashlib
import inspect
import sys
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from cronoq_django.compat import DjangoTask
from cronoq_django.conf import conf
from cronoq_django.errors import Quarantined


@dataclass(frozen=True, slots=True)
class RegisteredScript:
    """A task function under the name that rows know it by."""

    name: str
    task: Any  # a Task of django.tasks (ours or Django's own)
    signature: inspect.Signature

    @property
    def signature_hash(self) -> str:
        """Changes when the arguments do: 16 hex digits."""
        return hash_of(str(self.signature))

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.task.func) or ""

    def bind(self, args: Any, kwargs: Any) -> None:
        """Raise Quarantined, with the signature, if the function does not take these arguments."""
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise Quarantined("the arguments must be a JSON list, and the named ones a JSON object")
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Quarantined(f"{self.name}{self.signature} does not take these arguments: {error}") from None


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """A job that code declares with @job: its name and the columns of its Job row."""

    name: str
    columns: dict[str, Any] = field(hash=False)


_scripts: dict[str, RegisteredScript] = {}
_aliases: dict[str, str] = {}  # what a script was called before
_jobs: dict[str, DeclaredJob] = {}


def register(task: Any, *, anew: bool = True) -> None:
    """Make a Task known under its script name. A later one of the same name replaces it (a reloaded module), unless it
    is not `anew`: a copy with other options. Raises ValueError if another function has the name, or an alias."""
    name, aliases = script_name(task), getattr(task, "aliases", ())
    if task.func is unknown_script or (name in _scripts and not anew):
        return
    for taken in (name, *aliases):
        owner = _scripts.get(_aliases.get(taken, taken))
        if owner is not None and _place(owner.task) != _place(task):
            raise ValueError(f"Two tasks are known as {taken!r}: {_place(owner.task)} and {_place(task)}.")
    _scripts[name] = describe(task)
    _aliases.update(dict.fromkeys(aliases, name))


def _place(task: Any) -> str:
    """Where its function is; a module that is loaded anew has another function there."""
    return f"{task.func.__module__}.{task.func.__qualname__}"


def declare(job: DeclaredJob) -> None:
    """Make a job of the code known to `sync`. Raises ValueError if two different declarations share a name."""
    if job.name in _jobs and _jobs[job.name].columns["script"] != job.columns["script"]:
        raise ValueError(
            f"Two jobs are named {job.name!r}: for {_jobs[job.name].columns['script']} and for {job.columns['script']}."
        )
    _jobs[job.name] = job


def script_name(task: Any) -> str:
    """The name that rows carry for this Task: its own `script`, else module and qualified name."""
    return getattr(task, "script", "") or task.module_path


def hash_of(signature: str) -> str:
    """What tells one signature from another: 16 hex digits."""
    return hashlib.sha256(signature.encode()).hexdigest()[:16]


def unknown_script(*args: Any, **kwargs: Any) -> None:
    """Stands in for the function of a run whose script is not known here, so that its result can still be read."""
    raise Quarantined("this run's script is not known here")


def names() -> list[str]:
    """Every name that this process knows a script by, aliases too."""
    return sorted({*_scripts, *_aliases})


def scripts() -> dict[str, RegisteredScript]:
    """Every script known here, by name."""
    return dict(_scripts)


def jobs() -> dict[str, DeclaredJob]:
    """Every job that code declares, by name."""
    return dict(_jobs)


def describe(task: Any) -> RegisteredScript:
    """The script that a Task is; known ones are not looked at again."""
    name, function = script_name(task), task.func
    known = _scripts.get(name)
    if known is not None and known.task.func is function:
        return known
    parameters = list(inspect.signature(function).parameters.values())
    if task.takes_context:
        parameters = parameters[1:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return RegisteredScript(name, task, inspect.Signature(bare))


def missing(name: str) -> str:
    """Why there can be no script of that name here; empty if there is one, or may be, for all that is known without
    importing anything: the leader must not hang in somebody's module."""
    module_name, _, attribute = name.rpartition(".")
    if name in _scripts or name in _aliases:
        return ""
    if not _is_installed(module_name):
        return f"unknown script {name!r}: it is not registered, and is in no installed app"
    if (module := sys.modules.get(module_name)) is not None:
        return (
            "" if _is_task(vars(module).get(attribute)) else f"unknown script {name!r}: {module_name} has no such task"
        )
    parent = module_name
    while parent not in sys.modules:
        parent, _, child = parent.rpartition(".")
    path = getattr(sys.modules[parent], "__path__", None)
    spec = None if path is None else PathFinder.find_spec(f"{parent}.{child}", path)
    return "" if spec is not None else f"unknown script {name!r}: there is no module {parent}.{child}"


def find(name: str) -> RegisteredScript:
    """The script of that name. Raises Quarantined if it is not known and no installed app has a Task there."""
    name = _aliases.get(name, name)
    if name not in _scripts:
        task = _import(name)
        try:
            _scripts[name] = describe(task)
        except (TypeError, ValueError) as error:  # a function without a signature
            raise Quarantined(f"unknown script {name!r}: {error}") from error
    return _scripts[name]


def autodiscover() -> None:
    """Import the `tasks` module of every installed app, and CRONOQ["IMPORTS"]."""
    autodiscover_modules("tasks")
    for module in conf().imports:
        import_module(module)


def _import(name: str) -> Any:
    """A row may name a Task that no `tasks` module imported: look for it, in installed apps' packages only."""
    module_name, _, attribute = name.rpartition(".")
    if not _is_installed(module_name):
        raise Quarantined(f"unknown script {name!r}: it is not registered, and is in no installed app")
    try:
        found = getattr(import_module(module_name), attribute)
    except BaseException as error:  # whatever a module raises when it is imported is this row's trouble only
        raise Quarantined(f"unknown script {name!r}: {type(error).__name__}: {error}") from error
    if not _is_task(found):
        raise Quarantined(f"unknown script {name!r}: that is no task")
    return found


def _is_installed(module_name: str) -> bool:
    packages = (config.name for config in apps.get_app_configs())
    return any(module_name == package or module_name.startswith(f"{package}.") for package in packages)


def _is_task(found: Any) -> bool:
    return isinstance(found, DjangoTask) and callable(found.func)
