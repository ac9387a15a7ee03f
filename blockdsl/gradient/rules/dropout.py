"""Rule of Dropout."""
