"""Other services write to the documented keys, with plain commands."""
