"""A community to look at: people who never were, and what they post, vote on, take up, watch and buy.

A first `plaza serve` loads a small one, a gentle simulation keeps it alive, and `plaza demo` makes one of any size. All
of it goes through the domains' own verbs, so it is as true as anything else here: counters count, the audit is clean.
This package stands above the domains, as the composition root does; nothing in them knows of it.
"""
