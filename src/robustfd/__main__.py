"""`python -m robustfd` is the command `robustfd`."""

from robustfd.cli import script

if __name__ == "__main__":
    script()
