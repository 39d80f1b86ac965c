"""The embedded cluster: a separate process that speaks the real protocols and knows nothing of the console."""
