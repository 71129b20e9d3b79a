"""`python -m penstock.cli`, for where the `penstock` script is not on the path."""

from penstock.cli.app import app

if __name__ == "__main__":
    app(prog_name="penstock")
