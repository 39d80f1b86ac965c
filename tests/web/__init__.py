"""Pages, tested as a browser without script asks for them."""
