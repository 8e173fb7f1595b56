"""Plaza: a community platform back end on one Valkey."""

__version__: str


def __getattr__(name: str) -> str:
    """Read the version when it is asked for: that takes 50 ms, more than the rest of a small process needs to start."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import version

    return version("plaza")
