from hypothesis import settings

# The first call of a kernel compiles it, so single examples have no deadline; derandomised, a run repeats exactly.
settings.register_profile("ranktrial", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("ranktrial")
