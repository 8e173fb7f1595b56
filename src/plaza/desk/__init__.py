"""What operators need besides the domains' own data: a list of all users, notes about them, and figures of each day."""
