"""``python -m mooring`` is the command ``mooring``."""

from mooring.command.main import main

if __name__ == "__main__":
    main()
