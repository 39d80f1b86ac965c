"""Tests, laid out as the product is."""
