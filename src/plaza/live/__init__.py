"""Audience analytics of live events and their sessions: who is watching now, who ever did, from where and for how long.

It promises that every count is right at the moment it is given, whatever viewers do with tabs, addresses and clocks:
one viewer is one viewer, the peak is the true peak, attendance never shrinks. A heartbeat costs one round trip, whether
ten people watch or a million. What was measured outlives the raw keys: the worker writes it to SQL, exactly once.
"""
