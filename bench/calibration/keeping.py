"""What is found once and kept in a file, so that a study may be stopped and taken up again."""

import json

from isentrope._core.files import write_text


def kept(file, measure):
    """What `measure` finds, asked for once."""
    if not file.exists():
        write_text(file, json.dumps(measure()))
    return json.loads(file.read_text())
