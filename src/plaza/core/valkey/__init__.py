"""What `core/wire.py` is made of: addresses, calls and their errors, one server, a cluster."""
