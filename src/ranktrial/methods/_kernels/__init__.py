"""Compiled loops of the methods: a file each, and ``displays`` for what they share.

Every simulation draws queries uniformly and writes, at each checkpoint, the running sums of x, x^2 and clicks into a row of
``totals``. Clicks on one display are a 64-bit mask, bit r for rank r. A user is passed as its five arrays (see
``ranktrial.users``).
"""
