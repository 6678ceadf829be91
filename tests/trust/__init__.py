"""A job in production: everything goes wrong around it, and it never ends."""
