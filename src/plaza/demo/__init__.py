"""A demo community: fictional users with posts, votes, challenges, an event and a shop.

The first `plaza serve` loads a small one, a simulation keeps it active, and `plaza demo` creates one of any size. All
data is written by the domains' own commands, so every invariant holds. This package may import all domains; no domain
imports it.
"""
