"""Reads resources of Kubernetes as YAML, checks them strictly, and prints them as a JSON array.

A member that the API does not know is a fault, as is a kind without a schema: only those of the Prometheus operator are
exempt, whose schemas belong to no version of Kubernetes.
"""

import json
import sys

import kubernetes_validate
import yaml

VERSIONS = ["1.29", "1.37"]
UNCHECKED = "monitoring.coreos.com/"

resources = [it for it in yaml.safe_load_all(sys.stdin) if it]
faults = []
for resource in resources:
    if resource["apiVersion"].startswith(UNCHECKED):
        continue
    name = f"{resource['kind']} {resource['metadata']['name']}"
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(resource, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(map(str, error.absolute_path))
            faults.append(f"{name} ({version}): {place}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            faults.append(f"{name} ({version}): {error.message}")
if faults:
    sys.exit("\n".join(faults))
json.dump(resources, sys.stdout)
