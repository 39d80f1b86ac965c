"""Property tests of the rules: the same examples in every run, and none kept between runs."""

from hypothesis import settings

settings.register_profile("domain", derandomize=True, database=None, max_examples=25, deadline=None)
settings.load_profile("domain")
