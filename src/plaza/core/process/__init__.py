"""Operating system processes: children that die with their parent, the data directory lock, the listening socket."""
