"""`python -m robustfd` is the command `robustfd`."""

from robustfd.cli import main

if __name__ == "__main__":
    main()
