"""Tests of settings, system checks, processes and house rules."""
