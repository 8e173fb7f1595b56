"""Which domains run."""
