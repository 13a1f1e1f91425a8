"""Arrays in, arrays out: shrink rules, the decomposition of a buffer, the operator, the batch optimum."""
