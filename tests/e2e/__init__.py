"""Tests in a real browser, on a console of real processes. A run of their own: `pytest tests/e2e`."""
