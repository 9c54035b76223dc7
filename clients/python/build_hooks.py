"""Hooks of the build: the version is that of openapi.json, and the generated modules are written before packing."""

import json
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HERE = Path(__file__).parent


def description() -> Path:
    """openapi.json: that of the repository, or the copy that a source distribution has."""
    repository = HERE.parent.parent / "sidecar" / "openapi.json"
    return repository if repository.exists() else HERE / "openapi.json"


class Version(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["version"] = json.loads(description().read_text())["info"]["version"]


class Generated(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            build_data["force_include"][str(description())] = "openapi.json"
            return
        sys.path.insert(0, str(HERE))
        from generate import generate

        generate(description(), HERE / "src" / "ngx_shortlink")
