"""``python -m kvfrag``: the command line."""

from simulator.__main__ import main

if __name__ == "__main__":
    main()
