"""Reproduction of the tables and figures of Luo et al. 2019 with the public API of this library."""
