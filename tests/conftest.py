"""Settings for all tests."""

from hypothesis import settings

# A slow machine is no fault of the code: no test may fail by the clock.
settings.register_profile("kvfrag", deadline=None)
settings.load_profile("kvfrag")
