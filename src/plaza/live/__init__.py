"""Audience analytics of live events and their sessions: current viewers, attendance, countries, groups, watch time.

Every count is exact when it is returned: a viewer with several tabs or addresses counts once, the peak is the real
peak, and attendance never shrinks. A heartbeat costs one round trip, with ten viewers or a million. The worker copies
results to SQL exactly once, so they outlive the raw keys.
"""
