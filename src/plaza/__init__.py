"""Plaza: a community platform back end on one Valkey."""

from importlib.metadata import version

__version__ = version("plaza")
