"""What `core/http/app.py` is made of: from the bytes of a request to a handler's arguments, and back."""
