"""`python -m robustfd` runs the command line."""

from robustfd.cli import script

if __name__ == "__main__":
    script()
