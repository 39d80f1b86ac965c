"""The rules, as pure functions over values: no Django, no SDK, no clock, no network, no randomness."""
