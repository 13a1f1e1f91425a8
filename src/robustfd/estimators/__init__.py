"""Scikit-learn estimators over the sketches: validation, shapes and tags; the mathematics is below."""
