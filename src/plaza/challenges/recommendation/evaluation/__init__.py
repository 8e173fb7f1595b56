"""How good the recommendations are, measured offline on a public log beside simpler and larger methods.

MovieLens-100k: films stand for challenges, genres for categories, a rating for taking part. It is carried inside the
wheel of another package, is read from there at run time, and is never part of Plaza.
"""
