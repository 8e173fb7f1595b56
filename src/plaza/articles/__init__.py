"""Links that users post and vote on, in any number of groups.

Guarantees: a user has one vote per article, and `votes`, the vote sets and every score agree at any concurrency and
after any crash; ids only rise; pages neither repeat nor skip articles; a group's ranking is computed once a minute for
all its readers without blocking Valkey; a deleted article leaves no data behind.
"""
