"""Learners that see a row once: losses, domains, rates; sketched Newton, first-order and full baselines; regret."""
