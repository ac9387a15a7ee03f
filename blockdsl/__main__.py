"""`python -m blockdsl`: the command line."""

from blockdsl.cli import main

if __name__ == "__main__":
    main()
