"""The domain of notes: each user has a list of entries."""
