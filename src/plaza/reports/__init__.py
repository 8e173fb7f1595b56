"""Reports by users on what they see, and the admins' queue of them."""
