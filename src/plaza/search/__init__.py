"""Full-text search over people, posts, articles, challenges and items.

The index is in SQL. It follows the events of the other domains and can be rebuilt from source data at any time.
"""
