# SPDX-License-Identifier: LGPL-2.1-or-later
"""Checks kubernetes.yaml without a cluster: against Kubernetes' schemas, and what schemas do not see: names that have to
agree, routes, metrics and settings that the front has. tests/nightly/serve-clients calls it.

    python -m check_kubernetes [FILE]
"""
import dataclasses
import pathlib
import sys

import kubernetes_validate
import yaml
from qtts_serve.app import create_app
from qtts_serve.settings import Settings

VERSIONS = ("1.29", "1.32", "1.35")


def problems(documents):
    """A sentence for each problem."""
    for document in documents:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{document['kind']}, Kubernetes {version}: {error.message}"
    kinds = {document["kind"]: document for document in documents}
    deployment, service, scaler, budget = (kinds[kind]["spec"] for kind in (
        "Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"))
    labels = deployment["template"]["metadata"]["labels"]
    for kind, selector in (("Deployment", deployment["selector"]["matchLabels"]), ("Service", service["selector"]),
                           ("PodDisruptionBudget", budget["selector"]["matchLabels"])):
        if not selector.items() <= labels.items():
            yield f"{kind}: its selector {selector} selects no pod with the labels {labels}"
    if scaler["scaleTargetRef"]["name"] != kinds["Deployment"]["metadata"]["name"]:
        yield "HorizontalPodAutoscaler: scales another deployment"

    pod = deployment["template"]["spec"]
    container = pod["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    application = create_app(Settings())
    routes = {route.path for route in application.routes}
    probes = [container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    for port in [probe["port"] for probe in probes] + [service["ports"][0]["targetPort"]]:
        if port not in ports:
            yield f"the port {port} is none of the container's: {', '.join(ports)}"
    paths = [probe["path"] for probe in probes] + [deployment["template"]["metadata"]["annotations"]["prometheus.io/path"]]
    for path in paths:
        if path not in routes:
            yield f"the front has no route {path}"
    metrics = application.state.front.metrics.text().decode()
    for metric in scaler["metrics"]:
        if f"\n{metric['pods']['metric']['name']} " not in metrics:
            yield f"the front has no metric {metric['pods']['metric']['name']}"
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    known = {f"QTTS_SERVE_{field.name.upper()}" for field in dataclasses.fields(Settings)}
    for name in sorted(environment.keys() - known):
        yield f"the front has no setting {name}"
    if int(environment["QTTS_SERVE_PORT"]) != container["ports"][0]["containerPort"]:
        yield "the front listens on another port than the container's"
    needed = float(environment["QTTS_SERVE_DRAIN_DELAY"]) + float(environment["QTTS_SERVE_DRAIN_TIMEOUT"]) + 15
    if pod["terminationGracePeriodSeconds"] < needed:
        yield f"terminationGracePeriodSeconds is {pod['terminationGracePeriodSeconds']}; draining takes up to {needed:g} s"
    if container["resources"]["limits"].get("nvidia.com/gpu") != "1":
        yield "a pod does not have one card"


def main():
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("kubernetes.yaml")
    found = list(problems(list(yaml.safe_load_all(file.read_text(encoding="utf-8")))))
    for problem in found:
        print(f"{file.name}: {problem}", file=sys.stderr)
    print(f"{file.name}: {len(found)} problems; checked against Kubernetes {', '.join(VERSIONS)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
