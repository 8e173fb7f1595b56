"""Valkey commands over HTTP, limited to what the key catalogues declare as readable or writable.

`commands` is the allow-list of commands and their arguments. `access_rules` decides what a caller may do with a key,
from its declaration. `execution` turns a permitted command into the steps sent to Valkey. `service` sends them.
`encoding` converts between JSON and commands. `routes` are the four routes.
"""
