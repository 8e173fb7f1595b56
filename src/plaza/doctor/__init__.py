"""`plaza doctor`: checks an installation, with a fix for everything that is wrong. It changes and creates nothing."""
