"""Pages for people: templates and static files. Nothing here is fetched from elsewhere."""
