"""Links that people post and vote on, in any number of groups.

What it promises: one vote per person, and `votes`, the vote sets and every score agree at any moment, whoever votes
at the same time and whatever dies; ids that only rise; pages that neither repeat nor skip; a group's list that is
computed once a minute for all who read it, without ever stopping Valkey; and a deleted article that is nowhere.
"""
