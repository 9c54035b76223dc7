"""The figures that a benchmark hands on to the documents."""

import json
import os
import re

# The file that `bench/collect` has them written to.
COLLECTED = os.environ.get("BENCH_FIGURES")


def note(name, value):
    """Hands on a figure, under a name of parts with dots between them. All but letters and digits of a part becomes `_`, also
    the dot of a version. A dictionary is a figure for each of its keys."""
    if isinstance(value, dict):
        for key, each in value.items():
            note(f"{name}.{key}", each)
    elif COLLECTED:
        parts = re.sub(r"(?<=\d)\.(?=\d)", "_", name).split(".")
        parts = [re.sub(r"\W+", "_", part).strip("_") for part in parts]
        with open(COLLECTED, "a", encoding="utf-8") as file:
            print(json.dumps([parts, value]), file=file)
