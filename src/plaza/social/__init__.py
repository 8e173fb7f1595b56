"""Social: users, posts, follows, likes, bookmarks, comments, hashtags, feeds, a leaderboard and moderation.

Guarantees: every counter equals the size of the set it counts, under concurrency and after crashes; ranked scores stay
within 2% of the formula as time passes; a home feed is complete and newest first; deleted posts are in no key, banned
and blocked ones in no response; private fields are returned only to the user themself.
"""
