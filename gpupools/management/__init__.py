"""Commands and the supervisor that runs the console's processes."""
