"""Challenges in five categories, a daily job over their SQL tables, and recommendations of recent posts.

SQL is the record. What Valkey holds is derived from the tables and the current day, after any crash. A post in the pool
is recent, belongs to a public ongoing challenge, and is not a break.
"""
