"""Plans: the number of searches that a comparison needs, by method, before any click has come."""
