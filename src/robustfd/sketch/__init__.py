"""Streaming summaries of A'A: one engine with a rule, random projection, Oja, exact; merging; snapshots."""
