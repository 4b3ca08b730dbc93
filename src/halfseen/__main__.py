"""Lets ``python -m halfseen`` do what the command ``halfseen`` does."""

from halfseen.cli.main import run

if __name__ == "__main__":
    run()
