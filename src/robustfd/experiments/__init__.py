"""The tables and figures of Luo et al. 2019, made again from the public names of this library."""
