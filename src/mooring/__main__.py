"""``python -m mooring`` is the command ``mooring``."""

from mooring.cli.main import main

if __name__ == "__main__":
    main()
