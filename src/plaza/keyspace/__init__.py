"""What one declaration of every key makes possible. Reads catalogues, never services."""
