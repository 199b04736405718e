"""Check Kubernetes manifests against schemas, without a server.

Those of built-in kinds are in `kubernetes-validate`, those of the Dask operator's kinds in
`dask-kubernetes`. Unknown keys are errors, as with ``kubectl --validate=strict``; a server
would only drop them. Both packages are heavy, and in none of the project's extras.
"""

from importlib import resources

import jsonschema
import kubernetes_validate
import yaml

#: What a manifest of any kind has beside its own keys.
COMMON = {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}


def _definitions():
    """Yield the kinds of the Dask operator, each with its schema."""
    package = resources.files("dask_kubernetes")
    folder = package / "operator/deployment/helm/dask-kubernetes-operator/crds"
    for file in folder.iterdir():
        for definition in filter(None, yaml.safe_load_all(file.read_text())):
            spec = definition["spec"]
            for version in spec["versions"]:
                kind = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                yield kind, version["schema"]["openAPIV3Schema"]


def _strict(schema, common=()):
    """Return a schema of OpenAPI as one of JSON that allows no unknown keys."""
    schema = dict(schema)
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("type", None)
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in schema:
        known = {name: _strict(part) for name, part in schema["properties"].items()}
        schema["properties"] = known | dict(common)
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = _strict(schema[key])
    return schema


SCHEMAS = {kind: _strict(schema, COMMON) for kind, schema in _definitions()}


def problems_of(manifest):
    """The faults of a manifest; empty where there is none."""
    kind = manifest["apiVersion"], manifest["kind"]
    if kind in SCHEMAS:
        found = jsonschema.Draft7Validator(SCHEMAS[kind]).iter_errors(manifest)
        return [f"{error.json_path}: {error.message}" for error in found]
    try:
        newest = kubernetes_validate.latest_version()
        kubernetes_validate.validate(manifest, newest, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [error.message]
    return []
