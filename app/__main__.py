"""`python -m app` is `seatrial`."""

from app.cli import main

if __name__ == "__main__":
    main()
