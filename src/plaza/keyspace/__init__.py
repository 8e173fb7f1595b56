"""Features derived from the key catalogues: audit, memory report, key browser, ACLs and the HTTP proxy.

This package reads catalogues and Valkey; it never calls a domain's services.
"""
