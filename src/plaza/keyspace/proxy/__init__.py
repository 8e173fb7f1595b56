"""Valkey over HTTP, as far as the catalogue allows: what is not declared there as readable or writable is refused.

`commands.py` knows which commands there are and what each of their words is; `rules.py` what a caller may do with a
key, derived from its declaration; `plans.py` makes of a command what is sent to Valkey; `service.py` sends it;
`forms.py` reads and writes JSON as the two protocols have it; `routes.py` are the four routes.
"""
