"""The subcommands of `plaza`, one module per subject. `cli.py` calls `add_commands` of each."""
