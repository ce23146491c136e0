"""The chart as helm renders it: what stands in the pod, what is refused, and its use from another chart."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest
import yaml

from conftest import CHART, KUBE_VERSION, ROOT, SCENARIOS, HelmError, config_of, helm, needs_helm, pod_of, render, template

pytestmark = needs_helm

DEMO = CHART / "ci" / "demo-values.yaml"
LARGE = CHART / "ci" / "large-values.yaml"
LIBRARY = CHART / "ci" / "library-values.yaml"
EXISTING = CHART / "ci" / "existing-values.yaml"
OBSERVED = CHART / "ci" / "observability-values.yaml"
FETCH = CHART / "ci" / "fetch-values.yaml"
GOLDEN = pathlib.Path(__file__).parent / "golden"
ACCOUNT = "config.accounts.taxcloud-main"
MIB = 1 << 20


def sidecar_of(pod):
    [sidecar] = pod["initContainers"]
    return sidecar


def mounts_of(container):
    return {m["name"]: m for m in container["volumeMounts"]}


def volumes_of(pod):
    return {v["name"]: v for v in pod["volumes"]}


def mebibytes(quantity):
    assert quantity.endswith("Mi")
    return int(quantity[:-2])


@pytest.fixture(scope="module")
def demo():
    return pod_of(render("-f", DEMO), "shop-spillway-demo")


@pytest.mark.parametrize("values", SCENARIOS, ids=lambda p: p.stem)
def test_lint_is_clean(values):
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "-f", values)


@pytest.mark.parametrize("values", [s for s in SCENARIOS if s != EXISTING], ids=lambda p: p.stem)
def test_each_scenario_renders_its_own_configuration(values):
    wanted = yaml.safe_load(values.read_text())["config"]
    rendered = config_of(render("-f", values))
    assert rendered["accounts"].keys() == wanted["accounts"].keys()
    for name, account in wanted["accounts"].items():
        got = rendered["accounts"][name]
        for given_by_chart in {"proxy", "proxy_credentials_file"} - account.keys():
            got.pop(given_by_chart, None)
        assert got["limit"].pop("pods") >= 1
        account["limit"].pop("pods", None)
        assert got == account


# Whole numbers of a million and more must arrive in digits, however they were given.
def test_big_numbers_from_values():
    text = template("-f", LARGE)
    assert not re.search(r"[0-9]e\+", text)
    config = config_of(render("-f", LARGE))
    assert config["accounts"]["taxcloud-main"]["limit"] == {"burst": 1000000, "pods": 40, "rate": "2500000/d"}
    assert config["accounts"]["taxcloud-main"]["breaker"]["minimum"] == 1000000
    assert config["accounts"]["taxcloud-eu"]["limit"]["burst"] == 4000000000
    assert config["segment"]["rate_records"] == 1048576
    for digits in ("burst: 1000000\n", "burst: 4000000000\n", "rate_records: 1048576\n", "minimum: 1000000\n",
                   "runAsUser: 1000680000\n", "runAsGroup: 1000680001\n", "fsGroup: 1000680001\n",
                   "supplementalGroups: [1000680001]\n", "runAsUser: 1000680002\n"):
        assert digits in text


def test_big_numbers_from_the_command_line():
    sets = {f"{ACCOUNT}.limit.burst": 1000000, f"{ACCOUNT}.limit.rate": "2500000/d", f"{ACCOUNT}.limit.pods": 100000,
            f"{ACCOUNT}.breaker.minimum": 1000000, "config.segment.rate_records": 1048576, "uid": 67108864,
            "sharedGid": 2500000}
    args = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    text = template("-f", DEMO, *args)
    assert not re.search(r"[0-9]e\+", text)
    for digits in ("burst: 1000000\n", "rate: 2500000/d\n", "minimum: 1000000\n", "rate_records: 1048576\n",
                   "runAsUser: 67108864\n", "fsGroup: 2500000\n"):
        assert digits in text


def test_sidecar_is_native_and_starts_first(demo):
    sidecar = sidecar_of(demo)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "spillway-admin"}
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "spillway-admin"}
    assert "readinessProbe" not in sidecar
    assert sidecar["ports"] == [{"name": "spillway-admin", "containerPort": 9090}]
    assert sidecar["args"] == ["--config", "/etc/spillway/spillway.yaml"]
    assert "spillway" not in [c["name"] for c in demo["containers"]]
    assert demo["terminationGracePeriodSeconds"] == 60


def test_admin_port_follows_the_configuration():
    pod = pod_of(render("-f", DEMO, "--set-string", "config.listen.admin=[::]:9191"), "shop-spillway-demo")
    assert sidecar_of(pod)["ports"][0]["containerPort"] == 9191


def test_app_has_pub_read_only_and_rw_writable(demo):
    [app] = demo["containers"]
    mounts = mounts_of(app)
    assert mounts.keys() == {"spillway-pub", "spillway-rw"}
    assert mounts["spillway-pub"] == {"name": "spillway-pub", "mountPath": "/run/spillway/pub", "readOnly": True}
    assert mounts["spillway-rw"] == {"name": "spillway-rw", "mountPath": "/run/spillway/rw"}
    env = {e["name"]: e["value"] for e in app["env"]}
    assert env["SPILLWAY_URL"] == "http://127.0.0.1:8390"
    assert env["SPILLWAY_TOKEN_FILE"] == "/run/spillway/pub/token"
    sidecar = mounts_of(sidecar_of(demo))
    assert not sidecar["spillway-pub"].get("readOnly") and not sidecar["spillway-rw"].get("readOnly")
    assert sidecar["spillway-config"]["readOnly"] is True


def test_privileges(demo):
    sidecar = sidecar_of(demo)["securityContext"]
    app = demo["containers"][0]["securityContext"]
    for context in (sidecar, app):
        assert context["runAsNonRoot"] is True
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert sidecar["runAsUser"] == 65532
    assert app["runAsUser"] != sidecar["runAsUser"]
    assert demo["securityContext"]["fsGroup"] == sidecar["runAsGroup"]
    assert demo["securityContext"]["supplementalGroups"] == [sidecar["runAsGroup"]]
    assert demo["automountServiceAccountToken"] is False


def segment_bytes(config):
    """What the sidecar itself says of the rendered configuration."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(config, file)
        file.flush()
        program = pathlib.Path(os.environ["SPILLWAY_BIN"]) / "spillwayd"
        out = subprocess.run([program, "--config", file.name, "--print-segment-bytes"], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return (int(line.split()[1]) for line in out.stdout.splitlines())


# Memory-backed pages are charged to the sidecar, which touches them first; old and new exist side by side in a swap.
@pytest.mark.parametrize("values, counts", [
    (DEMO, {}), (LARGE, {}), (DEMO, {"slots": 8, "cells": 64, "rate_records": 1024}),
    # Twice each file is just more than whole MiB hold.
    (DEMO, {"slots": 256, "cells": 230, "rate_records": 1120}),
], ids=str)
def test_memory_holds_process_and_segment_twice(values, counts):
    documents = render("-f", values, *[f"--set=config.segment.{key}={count}" for key, count in counts.items()])
    pod = pod_of(documents, "shop-spillway-demo")
    pub_bytes, rw_bytes = segment_bytes(config_of(documents))
    volumes = volumes_of(pod)
    sizes = {name: volumes[name]["emptyDir"] for name in ("spillway-pub", "spillway-rw")}
    assert all(size["medium"] == "Memory" for size in sizes.values())
    # Both files twice, and room for sockets and token beside them.
    assert (mebibytes(sizes["spillway-pub"]["sizeLimit"]) - 1) * MIB >= 2 * pub_bytes
    assert (mebibytes(sizes["spillway-rw"]["sizeLimit"]) - 1) * MIB >= 2 * rw_bytes
    resources = sidecar_of(pod)["resources"]
    limit = mebibytes(resources["limits"]["memory"])
    assert limit == 96 + sum(mebibytes(size["sizeLimit"]) for size in sizes.values())
    assert mebibytes(resources["requests"]["memory"]) == limit
    assert "cpu" not in resources["limits"]


def test_secrets_by_reference_in_the_sidecar_only(demo):
    documents = render("-f", DEMO)
    assert {kind for kind, _ in documents} == {"ConfigMap", "Deployment", "Pod"}
    sources = volumes_of(demo)["spillway-config"]["projected"]["sources"]
    assert {"secret": {"name": "taxcloud", "items": [{"key": "api-key", "path": "secrets/taxcloud/api-key"}]}} in sources
    assert "spillway-config" not in mounts_of(demo["containers"][0])


def test_pods_are_filled_from_what_is_known():
    def pods(*args):
        accounts = config_of(render(*args))["accounts"]
        return {name: account["limit"]["pods"] for name, account in accounts.items()}

    assert pods("-f", DEMO) == {"taxcloud-main": 2}
    assert pods("-f", DEMO, "--set", "autoscaling.maxReplicas=9") == {"taxcloud-main": 9}
    assert pods("-f", LARGE) == {"taxcloud-main": 40, "taxcloud-eu": 12}
    assert pods("-f", LIBRARY) == {"taxcloud-main": 3}


def test_store_kinds():
    def store(kind, *args):
        pod = pod_of(render("-f", DEMO, "--set", f"store.kind={kind}", *args), "shop-spillway-demo")
        return volumes_of(pod)["spillway-store"]

    assert store("emptyDir")["emptyDir"] == {"sizeLimit": "1Gi"}
    claim = store("ephemeral")["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "1Gi" and "storageClassName" not in claim
    one = store("claim", "--set", "replicaCount=1", "--set", "store.claimName=flags")
    assert one["persistentVolumeClaim"] == {"claimName": "flags"}


@pytest.mark.parametrize("sets, sentence", [
    (["replicaCount=null", "demo.enabled=false"], "nothing says how many pods share the limit of account taxcloud-main"),
    (["config.accounts=null"], "missing property 'accounts'"),
    (["credentials=null"], "missing property 'credentials'"),
    (["credentials[0].mountPath=/etc/spillway/secrets/other"], "which nothing mounts: add an entry to credentials"),
    (["config.fallback.rates[0].file=/etc/spillway/rates/a.csv", "config.fallback.rates[0].as_of=2025-11-01",
      "config.fallback.rates[0].source=v"], "which nothing mounts: add an entry to files"),
    (["demo.uid=65532"], "demo.uid equals uid"),
    (["store.kind=claim", "replicaCount=1"], "name the claim in store.claimName"),
    (["store.kind=claim", "store.claimName=flags"], "store.kind claim serves one pod"),
    (["store.kind=external"], "which defines the volume spillway-store"),
    (["replicaCount=null", f"{ACCOUNT}.limit.pods=3"], "demo.enabled needs replicaCount"),
    (["config.loop.backend=io_uring"], "which seccompProfile RuntimeDefault forbids"),
    (["resources.memoryLimitMi=100"], "resources.memoryLimitMi 100 is below the"),
    (["app.shareProcessNamespace=true"], "app.shareProcessNamespace needs app.uid"),
    (["app.shareProcessNamespace=true", "app.uid=65532"], "app.uid equals uid in a shared process namespace"),
    (["app.uid=65532"], "app.uid equals uid: the app must not run as the sidecar's user"),
    (["config.drain=5m"], "leaves no room for the app to end before the sidecar drains (config.drain 5m): give at least 330"),
    (["rates.configMapName=a", "rates.volume.nfs.server=b"], "rates.configMapName stands alone"),
    (["rates.fetch.url=https://r.example/a"], "rates.fetch.url needs rates.fetch.file"),
    (["rates.fetch.url=https://r.example/a", "rates.fetch.file=a-2025-11-01.csv", "rates.fetch.schedule=@daily"],
     "rates.fetch.schedule needs rates.volume to be a persistentVolumeClaim"),
    (["rates.configMapName=a", "config.fallback.rates_dir=/b"], "config.fallback.rates_dir is the chart's"),
    (["sink.volume.nfs.server=a", "config.store.sink.file=/b"], "config.store.sink.file is the chart's"),
    (["networkPolicy.enabled=true", "demo.enabled=false"], "networkPolicy.podSelector is empty"),
    (["networkPolicy.enabled=true", "egressProxy.url=http://proxy.example:3128"],
     "networkPolicy.egressPorts lacks port 3128, by which account taxcloud-main goes out (http://proxy.example:3128)"),
    (["networkPolicy.enabled=true", f"{ACCOUNT}.url=https://tax.example:8443"], "networkPolicy.egressPorts lacks port 8443"),
    (["networkPolicy.enabled=true", "networkPolicy.egressPorts={8080}"], "networkPolicy.egressPorts lacks port 443"),
    (["monitoring.podMonitor.enabled=true", "demo.enabled=false"], "monitoring.podMonitor.podSelector is empty"),
    (["existingConfigMap.name=a"], "config.accounts is not read where existingConfigMap.name (a) is given"),
    (["config.drain=1m"], "(config.drain 1m): give at least 90"),
    (["config.listen.quote=127.0.0.1:9090"], "config.listen.admin and config.listen.quote have the same port 9090"),
    ([f"{ACCOUNT}.listen=127.0.0.1:8390"], f"{ACCOUNT}.listen and config.listen.quote have the same port 8390"),
    (["config.listen.control=127.0.0.1:65536"], "config.listen.control has port 65536, and ports end at 65535"),
], ids=lambda v: v[0] if isinstance(v, list) else None)
def test_contradictions_are_refused_with_a_sentence(sets, sentence):
    with pytest.raises(HelmError, match=re.escape(sentence)):
        template("-f", DEMO, *[part for s in sets for part in ("--set", s)])


@pytest.mark.parametrize("setting, place", [
    ("replicas=3", "'replicas' not allowed"),
    ("replicaCount=0", "/replicaCount"),
    ("replicaCount=many", "/replicaCount"),
    ("store.kind=disk", "/store/kind"),
    ("uid=0", "/uid"),
    ("uid=2147483647", "/uid"),  # the test pod's user is one more
    ("sharedGid=2147483648", "/sharedGid"),
    ("store.claimName=A_b", "/store/claimName"),
    ("monitoring.dashboard.labels.a=b c", "/monitoring/dashboard/labels/a"),
    ("seccompProfile.localhostProfile=../x", "/seccompProfile"),
    ("image.digest=sha256:12", "/image/digest"),
    ("seccompProfile.type=Unconfined", "/seccompProfile/type"),
    ("seccompProfile.type=Localhost", "/seccompProfile"),
    ("config.acounts.x=1", "'acounts' not allowed"),
    (f"{ACCOUNT}.limit.rate=100", f"/{ACCOUNT.replace('.', '/')}/limit/rate"),
    (f"{ACCOUNT}.limit.rate=1e6/s", f"/{ACCOUNT.replace('.', '/')}/limit/rate"),
    (f"{ACCOUNT}.limit.burst=1.5", f"/{ACCOUNT.replace('.', '/')}/limit/burst"),
    (f"{ACCOUNT}.limit.burst=4000000001", f"/{ACCOUNT.replace('.', '/')}/limit/burst"),
    (f"{ACCOUNT}.credentials.api_key=s3cret", "'api_key' not allowed"),
    (f"{ACCOUNT}.credentials.username_file=/u", f"/{ACCOUNT.replace('.', '/')}/credentials"),
    (f"{ACCOUNT}.routes[0]=GET", f"/{ACCOUNT.replace('.', '/')}/routes/0"),
    (f"{ACCOUNT}.rate_headers.reset_unit=weeks", f"/{ACCOUNT.replace('.', '/')}/rate_headers/reset_unit"),
    ("config.listen.quote=0.0.0.0:8390", "/config/listen/quote"),
    ("config.listen.admin=127.0.0.1:9090", "/config/listen/admin"),
    (f"{ACCOUNT}.listen=0.0.0.0:8391", f"/{ACCOUNT.replace('.', '/')}/listen"),
    ("config.listen.admin=0.0.0.0:0", "/config/listen/admin"),
    ("config.drain=1h", "/config/drain"),
    (f"{ACCOUNT}=null", f"/{ACCOUNT.replace('.', '/')}"),
    ("resources.memoryLimitMi=0", "/resources/memoryLimitMi"),
    ("nameOverride=tax", "'nameOverride' not allowed"),
    ("config.segment.cells=63", "/config/segment/cells"),
    ("terminationGracePeriodSeconds=59", "/terminationGracePeriodSeconds"),
    ("rates.fetch.url=http://rates.example/a", "/rates/fetch/url"),
    ("rates.fetch.file=../a.csv", "/rates/fetch/file"),
    ("egressProxy.url=http://user:word@proxy:3128", "/egressProxy/url"),
    ("networkPolicy.egressPorts[0]=70000", "/networkPolicy/egressPorts/0"),
    ("monitoring.podMonitor.every=1s", "'every' not allowed"),
    ("config.segment.pub_dir=/tmp", "'pub_dir' not allowed"),
    ("credentials[0].mountPath=/etc/spillway/secrets/../spillway.yaml", "/credentials/0/mountPath"),
], ids=lambda v: v)
def test_bad_values_are_refused_by_the_schema(setting, place):
    with pytest.raises(HelmError, match=re.escape(place)):
        template("-f", DEMO, "--set", setting)


def test_both_parts_of_a_credential_have_to_be_mounted(tmp_path):
    values = yaml.safe_load(DEMO.read_text())
    secrets = "/etc/spillway/secrets"
    values["config"]["accounts"] = {"avalara": {
        "provider": "avatax", "company": "ACME-US", "limit": {"rate": "100/s"},
        "credentials": {"username_file": f"{secrets}/u", "password_file": f"{secrets}/p"}}}
    values["credentials"] = [{**values["credentials"][0], "mountPath": f"{secrets}/u"}]
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(HelmError, match="account avalara reads /etc/spillway/secrets/p, which nothing mounts"):
        template("-f", path)


# helm reads YAML 1.1, in which on and off are true and false; the sidecar knows the words.
def test_on_and_off_arrive_as_words(tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text("config: {reconcile: {filing: on}, accounts: {taxcloud-main: {limit: {mode: off},"
                      " limiters: [{name: a, rate: 50/s, mode: off}, {name: b, rate: 50/s}]}}}\n")
    config = config_of(render("-f", DEMO, "-f", values))
    assert config["reconcile"] == {"filing": "on"}
    account = config["accounts"]["taxcloud-main"]
    assert account["limit"]["mode"] == "off"
    assert [limiter.get("mode") for limiter in account["limiters"]] == ["off", None]


def test_a_demo_of_a_configuration_that_is_not_seen_is_refused():
    with pytest.raises(HelmError, match="demo.enabled needs config"):
        template("-f", EXISTING, "--set", "demo.enabled=true", "--set", "replicaCount=1")


def test_no_account_is_refused():
    with pytest.raises(HelmError, match="config.accounts is empty"):
        template()


def test_two_files_at_one_place_are_refused(tmp_path):
    values = yaml.safe_load(DEMO.read_text())
    values["credentials"] *= 2
    twice = tmp_path / "values.yaml"
    twice.write_text(yaml.safe_dump(values))
    with pytest.raises(HelmError, match="two entries of credentials and files are mounted at"):
        template("-f", twice)


def test_notes_show_memory_and_share(tmp_path):
    # `helm template` leaves NOTES.txt out, and `helm install` wants a cluster: a copy renders it in a ConfigMap.
    chart = tmp_path / "spillway"
    shutil.copytree(CHART, chart)
    shutil.move(chart / "templates" / "NOTES.txt", chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(
        'kind: ConfigMap\nmetadata: {name: notes}\ndata:\n  notes: |\n    {{- tpl (.Files.Get "notes.txt") . | nindent 4 }}')
    notes = render("-f", LARGE, chart=chart)["ConfigMap", "notes"]["data"]["notes"]
    assert "96 MiB process + 338 MiB pub + 261 MiB rw (each twice its segment file) = 695 MiB" in notes
    assert "taxcloud-main: 2500000/d / 40 pods = 62500/d" in notes
    assert "taxcloud-eu: 50/s / 12 pods = 4.1667/s" in notes
    assert "WARNING: nothing takes the flags before a pod goes. store.kind is ephemeral" in notes
    assert "A changed configuration does not roll the pods" in notes

    def notes_of(values):
        return render("-f", values, chart=chart)["ConfigMap", "notes"]["data"]["notes"]

    assert "WARNING" not in notes_of(FETCH) and "A changed configuration rolls the pods." in notes_of(FETCH)
    assert "WARNING" not in notes_of(LIBRARY)  # external: the volume is the user's own
    assert "key production.yaml of ConfigMap shop-spillway" in notes_of(EXISTING)
    assert re.search(r"= \d+ MiB; limit 512 MiB", notes_of(EXISTING))
    for line in ("fallback.rates_dir: /var/lib/spillway-rates", "store.sink.file: /var/lib/spillway-sink",
                 "accounts.NAME.proxy_credentials_file: /etc/spillway/secrets/egress-proxy"):
        assert f"\n  {line}\n" in notes_of(EXISTING) + "\n"


def test_own_configuration_is_taken_as_it_is():
    text = template("-f", EXISTING)
    pod = next(d for d in yaml.safe_load_all(text) if d["kind"] == "Pod")["spec"]
    assert "kind: ConfigMap" not in text
    volumes = volumes_of(pod)
    sources = volumes["spillway-config"]["projected"]["sources"]
    assert sources[0]["configMap"] == {"name": "shop-spillway",
                                       "items": [{"key": "production.yaml", "path": "spillway.yaml"}]}
    assert volumes["spillway-rates"]["configMap"]["name"] == "tax-rates"
    assert volumes["spillway-sink"] == {"name": "spillway-sink",
                                        "persistentVolumeClaim": {"claimName": "spillway-flags"}}
    assert mounts_of(sidecar_of(pod))["spillway-rates"]["readOnly"] is True
    assert pod["shareProcessNamespace"] is True
    assert sidecar_of(pod)["resources"]["limits"] == {"memory": "512Mi"}


def test_rates_come_from_a_configmap_a_volume_or_a_url():
    def pod(*sets):
        args = [part for s in sets for part in ("--set", s)]
        documents = render("-f", DEMO, *args)
        assert config_of(documents)["fallback"]["rates_dir"] == "/var/lib/spillway-rates"
        return pod_of(documents, "shop-spillway-demo")

    one = pod("rates.configMapName=tax-rates")
    assert volumes_of(one)["spillway-rates"]["configMap"] == {"name": "tax-rates", "defaultMode": 0o444}
    two = pod("rates.volume.persistentVolumeClaim.claimName=rates")
    assert volumes_of(two)["spillway-rates"]["persistentVolumeClaim"] == {"claimName": "rates"}
    three = pod("rates.fetch.url=https://r.example/a-2025-11-01.csv.gz", "rates.fetch.file=a-2025-11-01.csv.gz")
    fetch, sidecar = three["initContainers"]
    assert (fetch["name"], sidecar["name"]) == ("spillway-rates", "spillway")
    assert "restartPolicy" not in fetch and not mounts_of(fetch)["spillway-rates"].get("readOnly")
    documents = render("-f", FETCH)
    job = documents["CronJob", "shop-spillway-rates"]["spec"]
    assert job["schedule"] == "17 4 * * *"
    assert [c["name"] for c in pod_of(documents, "shop-spillway-demo")["initContainers"]] == ["spillway"]


# The script of the rate job for real, with curl's place taken by one that copies: what it leaves behind is one table.
@pytest.mark.parametrize("sha256, code", [("", 0), ("0" * 64, 1)], ids=["any", "wrong-checksum"])
def test_the_rate_job_replaces_the_table_whole_or_not_at_all(tmp_path, sha256, code):
    url = "https://rates.example/a%2Fb%20c/zip5-%Y-%m-%d.csv.gz"  # escapes are no dates
    [container] = render("-f", FETCH, "--set", f"rates.fetch.url={url}")["CronJob", "shop-spillway-rates"]["spec"][
        "jobTemplate"]["spec"]["template"]["spec"]["containers"]
    rates, tools = tmp_path / "rates", tmp_path / "bin"
    rates.mkdir()
    tools.mkdir()
    (rates / "zip5-2020-01-01.csv.gz").write_text("old")
    (rates / "lost+found").mkdir()  # a disk has one
    (tools / "curl").write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nprintf %s "$3" >"$2"\n')
    (tools / "curl").chmod(0o755)
    env = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    assert {"name": "PROXY_USER", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "credentials"}}} in container["env"]
    env |= {"RATES_DIR": str(rates), "RATES_SHA256": sha256, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run([*container["command"], container["args"][0]], env=env, capture_output=True, text=True)
    assert (done.returncode != 0) == (code != 0), done.stderr
    seen = {p.name: p.read_text() for p in rates.glob("*.gz")}
    if code:
        assert seen == {"zip5-2020-01-01.csv.gz": "old"}
    else:
        [(name, text)] = seen.items()
        assert re.fullmatch(r"zip5-20\d\d-\d\d-\d\d\.csv\.gz", name)
        assert text == f"https://rates.example/a%2Fb%20c/{name}"


def test_egress_proxy_reaches_every_account_but_those_with_their_own():
    documents = render("-f", FETCH)
    account = config_of(documents)["accounts"]["avalara-main"]
    assert account["proxy"] == "http://proxy.example:3128"
    assert account["proxy_credentials_file"] == "/etc/spillway/secrets/egress-proxy"
    sources = volumes_of(pod_of(documents, "shop-spillway-demo"))["spillway-config"]["projected"]["sources"]
    assert {"secret": {"name": "proxy", "items": [{"key": "credentials", "path": "secrets/egress-proxy"}]}} in sources
    own = render("-f", FETCH, "--set", "config.accounts.avalara-main.proxy=http://own.example:3128")
    account = config_of(own)["accounts"]["avalara-main"]
    assert account["proxy"] == "http://own.example:3128" and "proxy_credentials_file" not in account


def test_sink_is_mounted_and_configured():
    documents = render("-f", FETCH)
    assert config_of(documents)["store"]["sink"] == {"file": "/var/lib/spillway-sink"}
    pod = pod_of(documents, "shop-spillway-demo")
    assert mounts_of(sidecar_of(pod))["spillway-sink"]["mountPath"] == "/var/lib/spillway-sink"


def test_a_changed_configuration_rolls_the_pods_only_when_asked():
    def template_of(*args):
        return render("-f", DEMO, *args)["Deployment", "shop-spillway-demo"]["spec"]["template"]

    change = ("--set", f"{ACCOUNT}.limit.rate=50/s")
    assert template_of() == template_of(*change)
    roll = ("--set", "rollOnConfigChange=true")
    assert template_of(*roll) != template_of(*roll, *change)
    # What cannot change under a running sidecar.
    assert template_of() != template_of("--set", "config.segment.cells=65536")


def test_network_policy():
    policy = render("-f", FETCH)["NetworkPolicy", "shop-spillway"]["spec"]
    labels = render("-f", FETCH)["Deployment", "shop-spillway-demo"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": 9090}], "from": [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]}]
    assert policy["egress"][1] == {"ports": [{"protocol": "TCP", "port": 3128}],
                                   "to": [{"ipBlock": {"cidr": "10.0.8.7/32"}}]}


def test_pod_monitor():
    monitor = render("-f", FETCH)["PodMonitor", "shop-spillway"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")


# A pod that is found by annotation and by monitor would be counted twice.
def test_a_pod_is_scraped_once():
    def annotations(*args):
        pod = render("-f", DEMO, *args)["Deployment", "shop-spillway-demo"]["spec"]["template"]["metadata"]
        return pod["annotations"] or {}
    assert annotations()["prometheus.io/scrape"] == "true"
    assert "prometheus.io/scrape" not in annotations("--set", "monitoring.podMonitor.enabled=true")


def test_two_releases_and_long_names_stand_beside_each_other():
    def names(release):
        documents = yaml.safe_load_all(helm("template", release, CHART, "--kube-version", KUBE_VERSION, "-f", FETCH))
        return {d["kind"]: d["metadata"]["name"] for d in documents if d}
    one, other, long = names("one"), names("other"), names("a" * 53)
    assert not set(one.values()) & set(other.values())
    # Kubernetes' own bounds: an object's labels hold 63, and a CronJob leaves eleven of them to its jobs.
    assert len(long["CronJob"]) <= 52 and len(long["Deployment"]) <= 63


def test_older_kubernetes_is_refused_and_vendors_versions_are_not():
    def version(text):
        return helm("template", "shop", CHART, "--kube-version", text, "-f", DEMO)
    with pytest.raises(HelmError, match="incompatible with Kubernetes v1.28.9"):
        version("v1.28.9")
    assert "restartPolicy: Always" in version("v1.29.4-eks-036c24b") + version("v1.30.1-gke.1156000")


def pods_of(documents):
    for document in documents.values():
        spec = document.get("spec", {})
        if document["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if document["kind"] == "Pod" or "template" in spec:
            yield spec if document["kind"] == "Pod" else spec["template"]["spec"]


# Pod Security Standard "restricted", as Kubernetes has it.
@pytest.mark.parametrize("values", [DEMO, LARGE, FETCH], ids=lambda p: p.stem)
def test_every_pod_is_restricted(values):
    pods = list(pods_of(render("-f", values)))
    assert pods
    for pod in pods:
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in pod.get("initContainers", []) + pod["containers"]:
            context = container["securityContext"]
            assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
            assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
            assert context["readOnlyRootFilesystem"] is True
            assert not any("hostPort" in port for port in container.get("ports", []))
        kinds = {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}}
        # An nfs volume is what FETCH asks for, and no restricted namespace takes it.
        assert kinds - {"nfs"} <= {"configMap", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}


def test_alerts_and_dashboard_are_the_files_word_for_word():
    documents = render("-f", OBSERVED)
    rule = documents["PrometheusRule", "shop-spillway"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    dashboard = documents["ConfigMap", "shop-spillway-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["spillway.json"]) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert documents["PodMonitor", "shop-spillway"]["spec"]["selector"] == {"matchLabels": {"app": "checkout"}}


def test_the_test_pod_takes_a_token_and_asks_for_health():
    documents = render("-f", LARGE)
    pod = documents["Pod", "shop-spillway-check"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    [check] = pod["spec"]["containers"]
    assert check["command"] == ["/usr/bin/spillwayctl", "check"]
    sidecar = sidecar_of(pod["spec"])
    assert check["image"] == sidecar["image"]
    assert check["securityContext"]["runAsUser"] != sidecar["securityContext"]["runAsUser"]
    assert mounts_of(check)["spillway-pub"]["readOnly"] is True
    assert volumes_of(pod["spec"])["spillway-store"]["emptyDir"] == {"sizeLimit": "10Gi"}
    assert ("Pod", "shop-spillway-check") not in render("-f", LARGE, "--set", "test.enabled=false")


def test_seccomp_profile_is_one_and_allows_io_uring():
    profile = json.loads((CHART / "files" / "seccomp-io-uring.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO" and profile["defaultErrnoRet"] == 38
    allowed = [name for rule in profile["syscalls"] for name in rule["names"]]
    assert len(allowed) == len(set(allowed)) and allowed == sorted(allowed)
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= set(allowed)
    assert not {"ptrace", "mount", "bpf", "process_vm_readv", "unshare", "setns", "keyctl"} & set(allowed)


def test_readme_says_what_the_values_say():
    done = subprocess.run([ROOT / "helm" / "readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# What a change of the chart does to the objects is seen in its diff. SPW_UPDATE_GOLDEN=1 writes them anew.
@pytest.mark.parametrize("values", SCENARIOS, ids=lambda p: p.stem)
def test_golden(values):
    golden = GOLDEN / values.name.replace("-values", "")
    # What is in files/ is compared with the files above.
    text = template("-f", values, "--set", "monitoring.prometheusRule.enabled=false,monitoring.dashboard.enabled=false")
    if os.environ.get("SPW_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "look at the difference; SPW_UPDATE_GOLDEN=1 takes it over"


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), "a key stands twice"
    return dict(pairs)


# The schema repeats the sidecar's, so that a mistake is told before a pod is made. The two must not drift apart.
def test_schema_knows_the_keys_of_the_configuration():
    given_by_chart = {"SegmentConfig": {"pub_dir", "rw_dir", "gid"}, "StoreConfig": {"file"},
                      "CredentialsConfig": {"api_key_env", "username_env", "password_env"}}
    proto = re.sub(r"//.*", "", (ROOT / "proto/spillway/v1/config.proto").read_text())
    proto = re.sub(r"enum \w+ \{[^}]*\}", "", proto)
    schema = json.loads((CHART / "values.schema.json").read_text(), object_pairs_hook=unique)["definitions"]
    messages = dict(re.findall(r"message (\w+) \{([^}]*)\}", proto))
    assert "Config" in messages and "AccountConfig" in messages
    for message, body in messages.items():
        fields = set(re.findall(r"(\w+) = \d+;", body))
        assert set(schema[message]["properties"]) == fields - given_by_chart.get(message, set()), message


@pytest.fixture(params=["spillway", "tax"])
def parent(request, tmp_path):
    """A chart made of the three examples in the chart's README, with the dependency under its name or an alias."""
    name = request.param
    dependency, values, deployment = re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(), re.S)
    chart = {"apiVersion": "v2", "name": "shop", "version": "1.0.0"} | yaml.safe_load(dependency)
    chart["dependencies"][0]["repository"] = f"file://{CHART}"
    if name != "spillway":
        chart["dependencies"][0]["alias"] = name
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({name: yaml.safe_load(values)["spillway"]}))
    (tmp_path / "templates" / "checkout.yaml").write_text(
        deployment.replace(".Subcharts.spillway", f".Subcharts.{name}"))
    helm("dependency", "update", tmp_path)
    return tmp_path, name


def test_another_chart_includes_the_sidecar(parent):
    chart, name = parent
    documents = render(chart=chart)
    config_name = "shop-spillway-config" if name == "spillway" else "shop-tax-config"
    check = config_name.replace("-config", "-check")
    assert set(documents) == {("ConfigMap", config_name), ("Deployment", "shop-checkout"), ("Pod", check)}
    assert config_of(documents, config_name)["accounts"]["taxcloud-main"]["limit"]["pods"] == 4
    pod = pod_of(documents, "shop-checkout")
    assert sidecar_of(pod)["restartPolicy"] == "Always"
    assert sidecar_of(pod)["image"] == "ghcr.io/spillway/spillway:0.1.0"
    sources = volumes_of(pod)["spillway-config"]["projected"]["sources"]
    assert sources[0] == {"configMap": {"name": config_name,
                                        "items": [{"key": "spillway.yaml", "path": "spillway.yaml"}]}}
    assert pod["terminationGracePeriodSeconds"] == 60
    assert pod["securityContext"]["supplementalGroups"] == [sidecar_of(pod)["securityContext"]["runAsGroup"]]
    [app] = pod["containers"]
    assert {"SPILLWAY_SOCKET", "SPILLWAY_URL", "SPILLWAY_TOKEN_FILE"} == {e["name"] for e in app["env"]}
    for container in (app, sidecar_of(pod)):
        assert mounts_of(container).keys() <= volumes_of(pod).keys()
    assert mounts_of(app)["spillway-pub"]["readOnly"] is True
    assert app["securityContext"]["runAsUser"] != sidecar_of(pod)["securityContext"]["runAsUser"]


# A pod that has env, mounts, init containers and volumes of its own takes the items; a Job as well as a StatefulSet.
OWN_ITEMS = """\
{{- $spillway := .Subcharts.spillway }}
{{- define "shop.podSpec" }}
terminationGracePeriodSeconds: 90
securityContext: {{- include "spillway.podSecurity" . | nindent 2 }}
initContainers:
  - {name: migrate, image: "registry.example/migrate:1"}
  {{- include "spillway.sidecar" . | nindent 2 }}
containers:
  - name: shop
    image: registry.example/shop:1
    env:
      - {name: SHOP, value: "1"}
      {{- include "spillway.appEnv" . | nindent 6 }}
    volumeMounts:
      {{- include "spillway.appMounts" . | nindent 6 }}
      - {name: shop, mountPath: /data}
volumes:
  - {name: shop, emptyDir: {}}
  {{- include "spillway.volumes" . | nindent 2 }}
{{- end }}
apiVersion: batch/v1
kind: Job
metadata: {name: reprice}
spec:
  template:
    spec:
      restartPolicy: Never
      {{- include "shop.podSpec" $spillway | nindent 6 }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: shop}
spec:
  serviceName: shop
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      {{- include "shop.podSpec" $spillway | nindent 6 }}
  volumeClaimTemplates:
    - metadata: {name: spillway-store}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


@pytest.mark.parametrize("parent", ["spillway"], indirect=True)
def test_items_stand_among_the_pods_own(parent):
    chart, _ = parent
    (chart / "templates" / "checkout.yaml").write_text(OWN_ITEMS)
    documents = render("--set", "spillway.store.kind=external", chart=chart)
    for kind, name in (("Job", "reprice"), ("StatefulSet", "shop")):
        pod = documents[kind, name]["spec"]["template"]["spec"]
        assert [c["name"] for c in pod["initContainers"]] == ["migrate", "spillway"]
        [app] = pod["containers"]
        assert {"SHOP", "SPILLWAY_URL"} <= {e["name"] for e in app["env"]}
        assert mounts_of(app).keys() == {"shop", "spillway-pub", "spillway-rw"}
        # The claim template's volume is the only one that the pod itself does not name.
        assert mounts_of(pod["initContainers"][1]).keys() - volumes_of(pod).keys() == {"spillway-store"}


def test_another_charts_values_reach_the_sidecar(parent):
    chart, name = parent
    documents = render("--set", f"{name}.config.listen.quote=null", "--set", f"{name}.image.tag=9.9", chart=chart)
    pod = pod_of(documents, "shop-checkout")
    assert sidecar_of(pod)["image"].endswith(":9.9")
    assert "SPILLWAY_URL" not in [e["name"] for e in pod["containers"][0]["env"]]
    [config] = [d["data"]["spillway.yaml"] for (kind, _), d in documents.items() if kind == "ConfigMap"]
    assert "quote" not in yaml.safe_load(config)["listen"]
    with pytest.raises(HelmError, match="'replicas' not allowed"):
        template("--set", f"{name}.replicas=3", chart=chart)
