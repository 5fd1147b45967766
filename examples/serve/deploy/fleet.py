# SPDX-License-Identifier: LGPL-2.1-or-later
"""The part of examples/serve/deploy/fleet for a running Ray: deploy, status. Its manual is there."""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import ray
import yaml
from ray import serve

LIMIT = 600  # seconds for a deployment: a model of gigabytes is read on each machine


def plan(arguments):
    """The deployment file with what the options change."""
    config = yaml.safe_load(pathlib.Path(arguments.file).read_text(encoding="utf-8"))
    application = config["applications"][0]
    deployment = application["deployments"][0]
    for setting in arguments.set:
        name, equals, value = setting.partition("=")
        if not equals:
            raise SystemExit(f"--set {setting}: NAME=VALUE is needed")
        application.setdefault("args", {})[name] = yaml.safe_load(value) if value else ""
    if arguments.cpu:
        deployment["ray_actor_options"].pop("num_gpus", None)
    if arguments.replicas:
        deployment.pop("autoscaling_config", None)
        deployment["num_replicas"] = arguments.replicas
    if arguments.per_machine:
        deployment["max_replicas_per_node"] = arguments.per_machine
    return config


def deploy(arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(plan(arguments), file)
        file.flush()
        subprocess.run(["serve", "run", "--non-blocking", "--address", "auto", file.name], check=True,
                       stdout=subprocess.DEVNULL, stderr=None if arguments.verbose else subprocess.DEVNULL)
    ray.init(address="auto", log_to_driver=False, logging_level="error")
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        application = serve.status().applications.get("qtts")
        if application and application.status == "RUNNING":
            return print("the fleet speaks: port 8000 of the first machine and of those with a replica")
        if application and application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            sys.exit(f"{application.status}: {application.message or application.deployments}")
        time.sleep(0.5)
    sys.exit(f"not deployed after {LIMIT} s")


def status(_arguments):
    ray.init(address="auto", log_to_driver=False, logging_level="error")
    for node in ray.nodes():
        print(f"machine {node['NodeManagerAddress']}: {'up' if node['Alive'] else 'lost'}, "
              f"{node['Resources'].get('GPU', 0):g} cards, {node['Resources'].get('CPU', 0):g} processors")
    for name, application in serve.status().applications.items():
        for deployment in application.deployments.values():
            replicas = ", ".join(f"{count} {state}" for state, count in deployment.replica_states.items())
            print(f"{name}: {application.status}; replicas: {replicas or 'none'}")


def main():
    parser = argparse.ArgumentParser("examples/serve/deploy/fleet")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("deploy")
    one.set_defaults(run=deploy)
    one.add_argument("--file", default=pathlib.Path(__file__).with_name("fleet.yaml"))
    one.add_argument("--cpu", action="store_true")
    one.add_argument("--replicas", type=int)
    one.add_argument("--per-machine", type=int)
    one.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    one.add_argument("--verbose", action="store_true")
    commands.add_parser("status").set_defaults(run=status)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
