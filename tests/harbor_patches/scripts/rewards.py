"""Runs in the harness environment: what the verifier makes of reward files. argv[1]: a folder with one folder a case."""

import json
import logging
import sys
from pathlib import Path

from harbor.models.trial.paths import TrialPaths
from seatrial_harness.verifier import SeatrialVerifier


class Case(SeatrialVerifier):
    def __init__(self, folder):
        self.trial_paths = TrialPaths(trial_dir=folder)
        self.logger = logging.getLogger()

    def read(self):
        if self.trial_paths.reward_json_path.exists():
            return self._parse_reward_json()
        return self._parse_reward_text()


found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    try:
        found[folder.name] = Case(folder).read()
    except Exception as error:
        found[folder.name] = type(error).__name__
sys.stdout.write(json.dumps(found))
