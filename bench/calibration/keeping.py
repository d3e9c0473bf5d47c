"""What is found once and kept in a file, so that a study may be stopped and taken up again."""

import json


def kept(file, measure):
    """What `measure` finds, asked for once."""
    if not file.exists():
        found = measure()
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(file)
    return json.loads(file.read_text())
