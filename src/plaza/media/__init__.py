"""Pictures: upload, processing, storage and delivery."""
