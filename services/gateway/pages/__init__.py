"""The web pages: rendered on the server, kept live by one small script."""
