"""The documents of the repository, as scripts/docs and scripts/prose read them."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\n]*$", re.DOTALL | re.MULTILINE)
# Copies of others' code.
THIRD_PARTY = ":!third-party"
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")


def tracked(*patterns):
    """The files that git tracks, or would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).exists()]


def documents():
    """The Markdown files."""
    return tracked("*.md", THIRD_PARTY)


def code():
    """The files whose comments and messages are English."""
    return tracked("*.rs", "*.js", ":!fuzz/corpus", THIRD_PARTY)
