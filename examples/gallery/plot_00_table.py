"""
From a CSV file to predictions
==============================

The learner accepts a table with text, dates and missing values, as a DataFrame or as a file on the command line.
"""

# %%
# A table of rentals: a city, a day, and a size that is sometimes missing.
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from robustfd import SketchedNewtonRegressor

rng = np.random.default_rng(0)
n = 4000
table = pd.DataFrame(
    {
        "city": rng.choice(["Oslo", "Rome", "Bonn", "Lyon"], n, p=[0.4, 0.3, 0.2, 0.1]),
        "day": pd.Timestamp("2025-01-01") + pd.to_timedelta(np.arange(n) % 730, unit="D"),
        "rooms": rng.integers(1, 6, n).astype(float),
    }
)
season = 30 * np.sin(2 * np.pi * table["day"].dt.dayofyear / 365.25)
price = 60 + 40 * table["rooms"] + table["city"].map({"Oslo": 50, "Rome": 30, "Bonn": 0, "Lyon": 10}) + season
table["price"] = (price + rng.normal(0, 10, n)).round(2)
table.loc[rng.random(n) < 0.15, "rooms"] = np.nan
print(table.head())

# %%
# In Python:
train, test = table[:3000], table[3000:]
model = SketchedNewtonRegressor(random_state=0).fit(train.drop(columns="price"), train["price"])
predicted = model.predict(test.drop(columns="price"))
print(f"R² on new rows: {1 - np.var(test['price'] - predicted) / np.var(test['price']):.2f}")

# %%
# The same with files on the command line:
folder = Path(tempfile.mkdtemp())
train.to_csv(folder / "train.csv", index=False)
test.to_csv(folder / "test.csv", index=False)
for command in (
    "train train.csv --target price -o model.rfd -q",
    "evaluate model.rfd test.csv",
    "inspect model.rfd -k 6",
):
    print("$ robustfd", command)
    print(
        subprocess.run(
            [sys.executable, "-m", "robustfd", *command.split()], cwd=folder, capture_output=True, text=True
        ).stdout
    )

# %%
figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
known = test["rooms"].notna()
ax.plot(test["price"][known], predicted[known], ".", ms=3, label="size known")
ax.plot(test["price"][~known], predicted[~known], ".", ms=3, label="size missing")
ax.axline((100, 100), slope=1, color="black", lw=0.8)
ax.set(xlabel="price", ylabel="predicted")
ax.legend()
