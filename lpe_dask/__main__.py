"""Run the command line as `python -m lpe_dask`."""

from lpe_dask.cli import main

if __name__ == "__main__":
    main()
