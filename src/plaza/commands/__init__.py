"""The commands, a module for each subject. Each has `add`, by which `cli.py` takes them in."""
