"""Measures the quality of recommendations offline on a public data set, compared with simpler and larger methods.

In MovieLens-100k films stand for challenges, genres for categories and a rating for taking part. The data set is inside
the wheel of another package. It is read from there at run time and is never part of Plaza.
"""
