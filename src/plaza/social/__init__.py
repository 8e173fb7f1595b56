"""Social: users, posts, follows, likes, bookmarks, comments, hashtags, feeds, a leaderboard and moderation.

It promises that every counter equals the set it counts, whatever happens at the same time and whoever dies on the way;
that a ranked feed stays right as time passes; that a home feed is complete and newest first; that what is deleted is
nowhere and what is banned or blocked is shown nowhere; and that private fields leave only to their own person.
"""
