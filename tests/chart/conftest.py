"""What the chart's tests share: where helm is, and one way to render."""
import os
import pathlib
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "spillway"
SCENARIOS = sorted((CHART / "ci").glob("*-values.yaml"))
GO_BIN = pathlib.Path.home() / "go" / "bin"
HELM = shutil.which("helm", path=os.pathsep.join([os.environ.get("PATH", ""), str(GO_BIN), str(ROOT / ".venv" / "bin")]))
# A helm made by `go install` believes in Kubernetes 1.20 unless told.
KUBE_VERSION = "1.31.0"

needs_helm = pytest.mark.skipif(
    HELM is None, reason="SKIP: helm is not on PATH; scripts/bootstrap installs it where Go 1.23 or later is")


def helm(*args):
    """Run helm; its standard output, or a HelmError with what it said."""
    done = subprocess.run([HELM, *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HelmError(done.stdout + done.stderr)
    return done.stdout


class HelmError(Exception):
    pass


def template(*args, chart=CHART):
    return helm("template", "shop", chart, "--kube-version", KUBE_VERSION, *args)


def render(*args, chart=CHART):
    """The documents of one rendering, by (kind, name)."""
    documents = yaml.safe_load_all(template(*args, chart=chart))
    return {(d["kind"], d["metadata"]["name"]): d for d in documents if d}


def pod_of(documents, name):
    return documents["Deployment", name]["spec"]["template"]["spec"]


def config_of(documents, name="shop-spillway-config"):
    return yaml.safe_load(documents["ConfigMap", name]["data"]["spillway.yaml"])
