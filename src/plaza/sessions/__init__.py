"""Browser sessions: a cookie, the token in it, and the session on the server. The shop and the pages use them.

A session that has ended never comes back. A token that the server did not issue gets a new session.
"""
