"""Processes: children that die with us, one owner per data directory, the listening socket."""
