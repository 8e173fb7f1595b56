"""Pages for people: server-rendered, with small scripts that are not needed. Nothing here is fetched from elsewhere.

It stands above the domains and calls their services as anybody else would, with the `Actor` of a session.
"""
