"""How each domain's share of a community is loaded. Doing it again changes nothing."""
