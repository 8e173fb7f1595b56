"""Imports a part of a library without the rest, where the rest takes longer to import than Plaza's own modules."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def import_submodule(name: str) -> ModuleType:
    """Import a module without running the `__init__` of its package, if that is not imported yet.

    For packages whose `__init__` imports much that Plaza does not use. Another import of the package runs it as usual.
    """
    package = name.rpartition(".")[0]
    if package in sys.modules:
        return import_module(name)
    found = find_spec(package)
    assert found is not None, f"{package} is a dependency"
    sys.modules[package] = module_from_spec(found)
    try:
        return import_module(name)
    finally:
        del sys.modules[package]


def import_without(name: str, optional: str) -> None:
    """Import a module as if another one, which it uses only where it is installed, were not there."""
    hidden = optional not in sys.modules
    if hidden:
        sys.modules[optional] = None  # type: ignore[assignment]
    try:
        import_module(name)
    finally:
        if hidden:
            del sys.modules[optional]
