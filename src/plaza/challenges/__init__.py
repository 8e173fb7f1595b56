"""Challenges in five categories, a daily job over their SQL tables, and recommendations of recent posts.

What it promises: SQL is the record, and what Valkey holds follows from it and from the day, whatever happened on the
way. A post in the pool is recent, public, of a challenge that goes on, and no break.
"""
