"""Writes models.py and _operations.py from openapi.json: generate.py OPENAPI DIRECTORY.

datamodel-code-generator writes the types. The method of each operation follows from its row in the description.
"""

import json
import keyword
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROWS = "application/x-ndjson"
# They change nothing a second time, although they are POST.
REPEATABLE = re.compile(r"/(pause|resume|block|unblock)$")
SIMPLE: dict[str, str] = {"string": "str", "integer": "int", "boolean": "bool"}
HEADER = '''"""The operations of the API, generated from openapi.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, cast

from . import models
from ._connection import Caller


class Operations(Caller):
    """A method for each operation of the API."""
'''


def snake(name: str) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.replace("-", "_")).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


def hint(schema: dict[str, Any]) -> str:
    """The type of a schema."""
    if "$ref" in schema:
        return f"models.{schema['$ref'].rsplit('/', 1)[1]}"
    if "anyOf" in schema:
        return " | ".join(hint(one) for one in schema["anyOf"])
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if schema["type"] == "array":
        return f"Sequence[{hint(schema['items'])}]"
    return SIMPLE[str(schema["type"])]


def item(content: dict[str, Any]) -> str:
    """The type of one of the rows that a body or an answer consists of, without the summary."""
    schema = content["x-itemSchema"]
    return hint(schema.get("anyOf", [schema])[0])


class Operation:
    def __init__(self, api: dict[str, Any], path: str, method: str, row: dict[str, Any]) -> None:
        self.path, self.method, self.row = path, method.upper(), row
        parameters = api["components"]["parameters"]
        self.parameters = [parameters[one["$ref"].rsplit("/", 1)[1]] for one in row.get("parameters", [])]
        self.body: dict[str, Any] = row.get("requestBody", {}).get("content", {})
        # All successful answers of an operation have the same formats.
        self.answers = [it["content"] for it in row["responses"].values() if ROWS in it.get("content", {})]
        successes = [answer for status, answer in row["responses"].items() if status.startswith("2")]
        self.results = [answer.get("content", {}) for answer in successes]

    def is_repeatable(self) -> bool:
        return self.method != "POST" or ROWS in self.body or REPEATABLE.search(self.path) is not None

    def has(self, name: str) -> bool:
        return any(parameter["name"] == name for parameter in self.parameters)

    def write(self, name: str, result: str, call: str, arguments: list[str], summary: str, left_out: set[str]) -> str:
        signature, passed = ["self"], [repr(self.method), repr(self.path)]
        for parameter in self.parameters:
            if parameter["in"] == "path":
                signature.append(f"{snake(parameter['name'])}: {hint(parameter['schema'])}")
        signature += arguments
        options = [it for it in self.parameters if it["in"] != "path" and it["name"] not in left_out]
        if options:
            signature.append("*")
        for parameter in options:
            signature.append(f"{snake(parameter['name'])}: {hint(parameter['schema'])} | None = None")
        for place in ("path", "query", "header"):
            of_place = self.parameters if place == "path" else options
            values = [f"{it['name']!r}: {snake(it['name'])}" for it in of_place if it["in"] == place]
            if values:
                passed.append(f"{'path_values' if place == 'path' else place}={{{', '.join(values)}}}")
        lines = "".join(f"        {it},\n" for it in signature)
        description = summary.replace("\\", "\\\\")
        return (
            f"\n    def {snake(name)}(\n{lines}    ) -> {result}:\n"
            f'        """{description}."""\n'
            f"        return {call.format(', '.join(passed))}\n"
        )

    def methods(self) -> list[str]:
        name, summary = self.row["operationId"], self.row["summary"].rstrip(".")
        if ROWS in self.body:
            flags = f"is_keyed={self.has('Idempotency-Key')}, has_upload={self.has('uploadId')}"
            return [
                self.write(
                    name,
                    f"Iterator[{item(self.results[0][ROWS])}]",
                    f"self._send_rows({{}}, rows=rows, {flags})",
                    [f"rows: Iterable[{item(self.body[ROWS])}]"],
                    f"{summary}, any number of rows; returns their results in the order of the rows",
                    {"columns", "delimiter", "summary"},
                )
            ]
        written = []
        if any("application/json" in it for it in self.results) or not self.answers:
            schemas = [it["application/json"]["schema"] for it in self.results if "application/json" in it]
            result = " | ".join(dict.fromkeys(hint(it) for it in schemas)) if schemas else "str"
            arguments, passed = [], f"is_json={bool(schemas)}, is_repeatable={self.is_repeatable()}"
            if self.body:
                arguments = [f"body: {hint(self.body['application/json']['schema'])}"]
                passed = f"body=body, {passed}"
            call = f"cast({result!r}, self._call({{}}, {passed}))"
            written.append(self.write(name, result, call, arguments, summary, set()))
        if self.answers:
            result = f"Iterator[{item(self.answers[0][ROWS])}]"
            export = re.sub("^list", "export", name)
            paging = {"limit", "cursor", "after", "wait"}
            written.append(self.write(export, result, "self._read_rows({})", [], f"{summary}, all of them", paging))
        return written


def operations(api: dict[str, Any]) -> str:
    text = HEADER
    for path, methods in api["paths"].items():
        for method, row in methods.items():
            contents = [it for answer in row["responses"].values() for it in answer.get("content", {})]
            # Neither is for callers of the internal server: an endless stream of events, and the fallback of nginx.
            if "text/event-stream" not in contents and not path.startswith("/resolve/"):
                text += "".join(Operation(api, path, method, row).methods())
    return text


def generate(description: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "datamodel_code_generator", "--input", str(description)]
    command += ["--input-file-type", "openapi", "--output", str(directory / "models.py")]
    command += ["--output-model-type", "typing.TypedDict", "--enum-field-as-literal", "all"]
    command += ["--target-python-version", "3.11", "--no-use-closed-typed-dict", "--disable-timestamp"]
    command += ["--use-schema-description", "--use-field-description", "--use-attribute-docstrings"]
    command += ["--formatters", "builtin"]
    subprocess.run(command, check=True, stderr=subprocess.PIPE)
    (directory / "_operations.py").write_text(operations(json.loads(description.read_text())))


if __name__ == "__main__":
    generate(Path(sys.argv[1]), Path(sys.argv[2]))
