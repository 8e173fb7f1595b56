"""Account security beyond the password: verified e-mail addresses and password reset by mail."""
