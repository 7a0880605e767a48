"""Do the unit tests of a core prove its rules? Random mutants tell: `make mutants`.

A mutant is a core of which one operator, comparison, condition or number inside of a function is
changed. It is killed if a test of `tests/unit/<service>` fails on it. A sample is taken with a
seed, equally many of each core; survivors are printed, the result is
tests/mutants/recorded.json. Tests are written against one seed, and the recorded figure is
that of another.

Why a tool of our own: mutmut and cosmic-ray are maintained, but rewrite the files or a copy of the
project, start a test run per mutant, and sample with no seed. Here a run is a fork.
"""
