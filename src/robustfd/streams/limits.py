"""Limits and defaults that several streams share."""

BLOCK_BYTES = 1 << 20
MOST_LABELS = 1000  # distinct labels; with more, targets count as numbers
DEFAULT_BITS = 18  # 2^18 columns for named features, the default of Vowpal Wabbit
MOST_BITS = 30
MOST_COLUMNS = 2**31 - 1  # the most that 32-bit indices can address
EXAMPLES = 10  # messages about skipped rows that a stream keeps
