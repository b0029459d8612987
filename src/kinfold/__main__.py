"""`python -m kinfold` is the command `kinfold`."""

from kinfold.cli.main import main

if __name__ == "__main__":
    main()
