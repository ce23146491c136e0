"""The chart's pod, played by podman: what the kubelet would do is done here, and said.

From the rendered pod: native sidecars become ordinary containers (podman 4.3 knows none), started before the app unless a
test says otherwise; probes are asked by the test; memory volumes are directories on /dev/shm, others on disk, with the
group and bits that fsGroup gives; the projected volume is written out; the test's images stand in for the rendered ones.
A provider on the pod's loopback is added as a container.
"""
import datetime
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "chart"))
from conftest import CHART, HELM, template  # noqa: E402

BIN = pathlib.Path(os.environ.get("SPILLWAY_BIN", ROOT / "build" / "dev" / "bin"))
IMAGE = "localhost/spillway-pod-test:base"
FULL_IMAGE = "localhost/spillway-pod-test:full"
WATCHDOG_S = 120  # ends a hang; nothing is measured by it
PROFILE = CHART / "files" / "seccomp-io-uring.json"
ACCOUNT = "taxcloud-main"
# Where the example ships to: 9.2 %, which makes its fallback 6.71.
RATES = b"""State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate
WA,98110,BAINBRIDGE ISLAND,WABI,0.092000,0.065000,0,0.027000,0
"""


def missing():
    """Why the machine cannot run a pod; None: it can try."""
    if os.geteuid() != 0:
        return "not root"
    for tool, package in (("podman", "podman"), ("runc", "runc"), ("nsenter", "util-linux"), ("curl", "curl")):
        if not shutil.which(tool):
            return f"{tool} is not on PATH; scripts/bootstrap installs {package}"
    if HELM is None:
        return "helm is not on PATH; scripts/bootstrap installs it"
    if not (BIN / "spillwayd-next").exists():
        return f"{BIN} has no programs"
    return None


def run(*words, check=True, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=WATCHDOG_S * 5, **more)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def podman(*words, **more):
    return run("podman", *words, **more)


def until(what, condition):
    end = time.monotonic() + WATCHDOG_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"never came: {what}")


def build_images():
    """The product's image by scripts/image, and one above it with the test's programs. False: no Debian can be had."""
    done = run(ROOT / "scripts" / "image", "--tag", IMAGE, "--built", BIN.parent, check=False)
    if done.returncode == 77:
        return False
    assert done.returncode == 0, done.stdout + done.stderr
    with tempfile.TemporaryDirectory() as context:
        for name in ("spillwayd-next", "spillway-provider-mock", "loadgen", "example_checkout", "pod_early"):
            run("strip", "-o", f"{context}/{name}", BIN / name)
        (pathlib.Path(context) / "Containerfile").write_text(f"FROM {IMAGE}\nCOPY * /opt/test/\n")
        podman("build", "--isolation", "chroot", "--pull=never", "-q", "-t", FULL_IMAGE, context)
    return True


class Pod:
    def __init__(self, name, *sets, seccomp=None, kind="Deployment"):
        self.name = f"{name}-{os.getpid()}"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="spillway-pod."))
        self.memory = pathlib.Path(tempfile.mkdtemp(prefix="spillway-pod.", dir="/dev/shm"))
        os.chmod(self.dir, 0o755)
        os.chmod(self.memory, 0o755)
        self.seccomp = seccomp
        self.documents = self.render(sets)
        self.spec = next(d for d in self.documents if d["kind"] == "Deployment")["spec"]["template"]["spec"]
        self.write()

    # ---- from the chart to podman ----

    def render(self, sets):
        today = datetime.date.today().isoformat()
        values = {
            "replicaCount": 1, "demo": {"enabled": True},
            "config": {
                "accounts": {ACCOUNT: {
                    "provider": "taxcloud", "url": "http://127.0.0.1:9080", "allow_plain_http": True,
                    "connection": "25eb9b97-5acb-492d-b720-c03e79cf715a",
                    "credentials": {"api_key_file": "/etc/spillway/secrets/taxcloud/api-key"},
                    "limit": {"rate": "100/s", "burst": 1000000}, "integrations": {"web": "checkout"}}},
                "fallback": {"rates": [{"file": "/etc/spillway/rates/zip5.csv.gz", "as_of": today, "source": "sample"}]}},
            "credentials": [{"name": "taxcloud", "secretName": "taxcloud", "key": "api-key",
                             "mountPath": "/etc/spillway/secrets/taxcloud/api-key"}],
            "files": [{"configMapName": "rates", "key": "zip5.csv.gz", "mountPath": "/etc/spillway/rates/zip5.csv.gz"}],
            "sink": {"volume": {"persistentVolumeClaim": {"claimName": "flags"}}}}
        (self.dir / "values.yaml").write_text(yaml.safe_dump(values))
        text = template("-f", self.dir / "values.yaml", *[part for s in sets for part in ("--set", s)])
        return [d for d in yaml.safe_load_all(text) if d]

    def projected(self, volume):
        """The kubelet's part: the ConfigMaps' and Secrets' keys, readable by the group, in a directory behind a link."""
        objects = {"rates": {"zip5.csv.gz": gzip.compress(RATES)}, "taxcloud": {"api-key": b"key-of-the-test"}}
        objects |= {d["metadata"]["name"]: {k: v.encode() for k, v in d["data"].items()}
                    for d in self.documents if d["kind"] == "ConfigMap"}
        top = self.dir / volume["name"]
        top.mkdir(exist_ok=True)
        data = pathlib.Path(tempfile.mkdtemp(prefix="..", dir=top))
        data.chmod(0o755)
        for source in volume["projected"]["sources"]:
            [part] = source.values()
            for item in part["items"]:
                path = data / item["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(objects[part["name"]][item["key"]])
                os.chown(path, 0, self.gid)
                path.chmod(volume["projected"]["defaultMode"])
                first = top / item["path"].split("/")[0]
                if not first.is_symlink():
                    first.symlink_to(f"..data/{first.name}")
        (top / "..data_tmp").symlink_to(data.name)
        (top / "..data_tmp").rename(top / "..data")
        return top

    def reconfigure(self, *sets):
        """Another configuration by the chart, swapped in as the kubelet does."""
        self.documents = self.render(sets)
        spec = next(d for d in self.documents if d["kind"] == "Deployment")["spec"]["template"]["spec"]
        self.projected(next(v for v in spec["volumes"] if "projected" in v))

    def directory(self, volume):
        if "projected" in volume:
            return self.projected(volume)
        if "configMap" in volume:
            path = self.dir / volume["name"]
            path.mkdir()
            (path / f"{volume['configMap']['name']}-{datetime.date.today()}.csv.gz").write_bytes(
                gzip.compress(RATES.replace(b"0.092000,0.065", b"0.100000,0.073")))
            return path
        memory = volume.get("emptyDir", {}).get("medium") == "Memory"
        path = (self.memory if memory else self.dir) / volume["name"]
        path.mkdir()
        os.chown(path, 0, self.gid)
        path.chmod(0o2777 if "emptyDir" in volume else 0o2770)
        return path

    def write(self):
        spec = self.spec
        self.gid = spec["securityContext"]["fsGroup"]
        app = spec["containers"][0]
        app["command"] = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"]
        app.pop("args")
        app["resources"] = {}
        sidecar = spec["initContainers"][-1]
        provider = {"name": "provider", "command": ["/opt/test/spillway-provider-mock", "--listen", "127.0.0.1:9080"],
                    "securityContext": {"runAsUser": 20001}}
        for container in (sidecar, app, provider):
            container |= {"image": FULL_IMAGE, "imagePullPolicy": "Never"}
            for probe in ("startupProbe", "livenessProbe", "restartPolicy", "terminationMessagePolicy", "ports"):
                container.pop(probe, None)
        # podman 4.3 takes no supplementalGroups from a pod: the app gets the shared group as its own.
        app["securityContext"]["runAsGroup"] = self.gid
        volumes = [{"name": v["name"], "hostPath": {"path": str(self.directory(v)), "type": "Directory"}}
                   for v in spec["volumes"]]
        self.sink = self.dir / "spillway-sink"
        self.places = {v["name"]: v["hostPath"]["path"] for v in volumes}
        self.mounts = sidecar["volumeMounts"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "annotations": {}},
               "spec": {"restartPolicy": "Never", "containers": [provider, sidecar, app], "volumes": volumes}}
        if self.seccomp:
            pod["metadata"]["annotations"][
                "container.seccomp.security.alpha.kubernetes.io/spillway"] = f"localhost/{self.seccomp.name}"
        (self.dir / "pod.yaml").write_text(yaml.safe_dump(pod))

    # ---- life ----

    def __enter__(self):
        words = ["kube", "play", "--network=none", "--start=false"]
        if self.seccomp:
            words.append(f"--seccomp-profile-root={self.seccomp.parent}")
        try:
            podman(*words, self.dir / "pod.yaml")
            self.start("provider")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, failed, *_):
        if failed:
            for name in ("spillway", "app", "provider"):
                done = podman("logs", self.of(name), check=False)
                print(f"---- {name}\n{done.stdout}{done.stderr}")
        self.remove()

    def remove(self):
        podman("pod", "rm", "-f", "-t", "0", self.name, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def of(self, container):
        return f"{self.name}-{container}"

    def start(self, container):
        podman("start", self.of(container))

    def up(self):
        """As with the chart's startup probe: the app starts when the sidecar is ready."""
        self.start("spillway")
        self.ready()
        self.start("app")
        return self

    def replace_sidecar(self, program):
        """Another image for the sidecar alone, as a patched pod gets it: the same mounts, the same user."""
        podman("stop", "-t", "60", self.of("spillway"))
        assert self.state("spillway")["ExitCode"] == 0
        mounts = [word for m in self.mounts for word in (
            "-v", f"{self.places[m['name']]}:{m['mountPath']}:{'ro' if m.get('readOnly') else 'rw'}")]
        podman("run", "-d", "--pod", self.name, "--name", self.of("later"), *mounts, "--user", f"65532:{self.gid}",
               "--read-only", "--cap-drop=all", "--entrypoint", program, FULL_IMAGE,
               "--config", "/etc/spillway/spillway.yaml")
        self.ready("later")

    def ready(self, container="spillway"):
        until("the sidecar is ready", lambda: self.http(container, "http://127.0.0.1:9090/readyz").returncode == 0)

    def pid(self, container):
        return int(podman("inspect", "-f", "{{.State.Pid}}", self.of(container)).stdout)

    def state(self, container):
        return json.loads(podman("inspect", self.of(container)).stdout)[0]["State"]

    def wait_end(self, container):
        """The exit code, once it has one."""
        until(f"{container} ends", lambda: self.state(container)["Status"] in ("exited", "stopped"))
        return self.state(container)["ExitCode"]

    def http(self, container, *words):
        """curl on the pod's loopback, as the kubelet or a neighbour would reach it."""
        return run("nsenter", "-t", self.pid(container), "-n", "curl", "-sSf", "-m", "10", *words, check=False)

    def provider_does(self, *steps):
        """Give the provider a script; none: it behaves."""
        done = self.http("provider", "-d", json.dumps(steps), "http://127.0.0.1:9080/mock/scenario")
        assert done.returncode == 0, done.stderr

    def exec(self, container, *words, check=True):
        return podman("exec", self.of(container), *words, check=check)

    def checkout(self):
        """What the README's example prints, from the app's container."""
        done = self.exec("app", "/opt/test/example_checkout", check=False)
        return done.stdout.strip()

    def status(self):
        return json.loads(self.exec("app", "/usr/bin/spillwayctl", "status", "--json").stdout)

    def log(self, container="spillway"):
        done = podman("logs", self.of(container))
        return done.stdout + done.stderr
