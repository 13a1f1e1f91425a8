"""Print the peak resident memory, in MB, of a process that sketches rows like those of the benchmark `sparse`."""

from pathlib import Path

from benchmarks.common import zipf_rows
from robustfd import RobustFrequentDirections

rfd = RobustFrequentDirections(50)
for seed in range(20):
    rfd.partial_fit(zipf_rows(1000, 20000, 40, seed))
assert rfd.n_samples_seen_ == 20000
# Not getrusage, whose peak includes that of the parent process.
print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)
