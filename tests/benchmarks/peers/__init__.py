"""Environment classes for `harbor run`: what a trial costs there. Loaded by Harbor, in the harness environment alone."""
