"""Every rendered document against Kubernetes' own published schemas."""
import subprocess

import pytest
import yaml

from conftest import KUBE_VERSION, ROOT, SCENARIOS, needs_helm, template

VALIDATE = ROOT / ".venv" / "bin" / "kubernetes-validate"

pytestmark = [
    needs_helm,
    pytest.mark.skipif(not VALIDATE.exists(),
                       reason="SKIP: kubernetes-validate is missing; scripts/bootstrap installs it when PyPI is reached"),
]


def validate(path):
    return subprocess.run([VALIDATE, "--strict", "-k", KUBE_VERSION, path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("values", SCENARIOS, ids=lambda p: p.stem)
def test_documents_are_kubernetes_objects(values, tmp_path):
    # The Prometheus operator's kinds are no part of Kubernetes, and its schemas not among them.
    documents = [d for d in yaml.safe_load_all(template("-f", values)) if not d["apiVersion"].startswith("monitoring.")]
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(yaml.safe_dump_all(documents))
    done = validate(rendered)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_sees_a_wrong_field(tmp_path):
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(template("-f", SCENARIOS[0]).replace("allowPrivilegeEscalation:", "allowEscalation:"))
    assert validate(rendered).returncode != 0
