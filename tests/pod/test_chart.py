"""A real pod from the chart's output: two containers, two users, two process namespaces, shared memory between them."""
import json
import os
import re
import signal
import subprocess

import pytest

import pods
from pods import ACCOUNT, FULL_IMAGE, PROFILE, Pod, podman, until

WHY_NOT = pods.missing()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"SKIP: no pod on this machine: {WHY_NOT}")


@pytest.fixture(scope="module", autouse=True)
def images():
    os.environ["CONTAINERS_CONF"] = str(pods.ROOT / "image" / "containers.conf")
    if not pods.build_images():
        pytest.skip("SKIP: no pod on this machine: neither a registry with Debian nor a mirror for debootstrap is reached")
    done = podman("run", "--rm", "--network=none", "--entrypoint", "/bin/true", FULL_IMAGE, check=False)
    if done.returncode:
        pytest.skip(f"SKIP: no pod on this machine: podman cannot run a container: {done.stderr.strip()[-200:]}")


def backend(pod):
    return pod.status()["loop"]["backend"]


def test_two_users_two_namespaces_one_memory():
    with Pod("plain") as pod:
        pod.up()
        ids = {c: pod.exec(c, "/usr/bin/id", "-u").stdout.strip() for c in ("app", "spillway")}
        assert ids == {"app": "10001", "spillway": "65532"}
        spaces = {pod.exec(c, "/bin/readlink", "/proc/self/ns/pid").stdout for c in ("app", "spillway")}
        assert len(spaces) == 2
        # pub is read-only in the app, the root file system in the sidecar.
        assert "Read-only file system" in pod.exec("app", "touch", "/run/spillway/pub/x", check=False).stderr
        assert "Read-only file system" in pod.exec("spillway", "touch", "/etc/x", check=False).stderr
        assert pod.exec("app", "touch", "/run/spillway/rw/x").returncode == 0
        assert pod.exec("app", "cat", "/etc/spillway/secrets/taxcloud/api-key", check=False).returncode != 0
        # Podman's own profile, as RuntimeDefault: no io_uring.
        assert backend(pod) == "epoll"
        out = pod.exec("app", "/usr/bin/spillwayctl", "check").stdout
        assert f"{ACCOUNT}: one of " in out and "taken and given back" in out and "health: SERVING" in out
        assert pod.checkout() == "live tax 6.02 from the provider"
        assert pod.http("app", "http://127.0.0.1:9090/healthz").returncode == 0


def test_the_charts_profile_allows_io_uring():
    with Pod("uring", "seccompProfile.type=Localhost", f"seccompProfile.localhostProfile={PROFILE.name}",
             seccomp=PROFILE) as pod:
        pod.up()
        assert backend(pod) == "io_uring"
        assert pod.checkout() == "live tax 6.02 from the provider"
        pod.provider_does({"status": 500})
        assert pod.checkout().startswith("fallback tax 6.71")
        # What the runbooks do in the sidecar's container, under the same profile; kubectl cp needs tar.
        for words in ("spillwayctl status", "tar --version", "df -h /var/lib/spillway", "ls -l /var/lib/spillway",
                      "spillwayctl flags export --format csv --out /var/lib/spillway/flags.csv --ack nightly"):
            assert pod.exec("spillway", *words.split()).returncode == 0
        podman("stop", "-t", "60", pod.of("spillway"))
        assert pod.state("spillway")["ExitCode"] == 0


def test_either_may_be_killed():
    with Pod("kill") as pod:
        pod.up()
        load = subprocess.Popen(["podman", "exec", pod.of("app"), "/opt/test/loadgen", "acquire", "--name", "a",
                                 "--account", ACCOUNT], stdout=subprocess.DEVNULL)
        until("the load is attached", lambda: pod.status()["segment"]["attached"] >= 1)
        podman("kill", "-s", "KILL", pod.of("app"))
        load.wait(pods.WATCHDOG_S)
        pod.wait_end("app")
        pod.start("app")
        # The dead process's slot comes back though nobody outside could name its pid.
        until("its slot is free", lambda: pod.status()["segment"].get("attached", 0) == 0)
        assert pod.checkout() == "live tax 6.02 from the provider"

        generation = pod.status()["segment"]["generation"]
        podman("kill", "-s", "KILL", pod.of("spillway"))
        assert pod.wait_end("spillway") == 128 + signal.SIGKILL
        assert pod.checkout() == "fallback tax 6.71 sidecar-unavailable"
        pod.start("spillway")
        pod.ready()
        segment = pod.status()["segment"]
        assert segment["generation"] == generation and segment["origin"] == "adopted"
        until("the flag of the time without a sidecar is stored", lambda: int(pod.status()["store"]["flags"]) == 1)
        assert pod.checkout() == "live tax 6.02 from the provider"


# What the chart's upgrade notes say of a changed configuration.
def test_a_swapped_configmap_is_taken_whole_or_not_at_all():
    with Pod("swap") as pod:
        pod.up()
        rate = f"config.accounts.{ACCOUNT}.limit.rate"

        def limit():
            return pod.exec("app", "/usr/bin/spillwayctl", "limits", "get", ACCOUNT, "--json").stdout

        started = pod.state("spillway")["StartedAt"]
        assert '"100/s"' in limit()
        pod.reconfigure(f"{rate}=40/s")
        until("the new limit is in force", lambda: '"40/s"' in limit())
        pod.reconfigure(f"{rate}=30/s", f"config.accounts.{ACCOUNT}.connections=4")
        until("it is refused", lambda: "needs a restart" in pod.log())
        assert '"40/s"' in limit()
        assert pod.state("spillway")["StartedAt"] == started
        assert pod.checkout() == "live tax 6.02 from the provider"
        # As a rolled pod begins: with what is in the ConfigMap now.
        podman("stop", "-t", "60", pod.of("spillway"))
        pod.start("spillway")
        pod.ready()
        assert '"30/s"' in limit()


# A sidecar's image can be changed in a running pod: the clients stay, and meet the later layout.
def test_upgrade_to_the_next_layout_under_running_clients():
    with Pod("next") as pod:
        pod.up()
        before = pod.status()["segment"]["generation"]
        load = subprocess.Popen(["podman", "exec", pod.of("app"), "/opt/test/loadgen", "acquire", "--name", "a",
                                 "--account", ACCOUNT], stdout=subprocess.PIPE, text=True)
        first = json.loads(load.stdout.readline())
        pod.replace_sidecar("/opt/test/spillwayd-next")
        after = pod.status()["segment"]
        assert after["generation"] != before
        until("the running client has moved over", lambda: pod.status()["segment"].get("attached", 0) >= 1)
        pod.exec("app", "/bin/sh", "-c", "kill -TERM $(awk '$2 == \"(loadgen)\" {print $1}' /proc/[0-9]*/stat)")
        rest = [json.loads(line) for line in load.stdout]
        assert load.wait(pods.WATCHDOG_S) == 0
        assert first["verdict"] == "ALLOW" and rest[-1]["verdict"] == "ALLOW"
        assert pod.checkout() == "live tax 6.02 from the provider"


# README.md, word for word, but for compiling once more what is compiled, and the name, which others may have in use.
def test_the_readme_leads_to_a_sidecar_that_admits(tmp_path):
    [block] = re.findall(r"<!-- pod: tests run this block -->\n```sh\n(.*?)```", (pods.ROOT / "README.md").read_text(), re.S)
    lines = block.splitlines(keepends=True)
    assert lines.pop(0).startswith("scripts/bootstrap && scripts/image ")
    name = f"spillway-try-{os.getpid()}"
    text = (pods.ROOT / "docs" / "pod.yaml").read_text()
    image = f"localhost/spillway:{re.search(r'spillway VERSION ([0-9.]+)', (pods.ROOT / 'CMakeLists.txt').read_text())[1]}"
    assert f"image: {image}\n" in text
    for path in ("docs/pod.yaml", "scripts/pod", "scripts/lib.sh", "image/containers.conf"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text((pods.ROOT / path).read_text().replace("spillway-try", name).replace(image, pods.IMAGE))
        (tmp_path / path).chmod(0o755)
    try:
        for _ in range(2):  # what one run leaves behind does not stop the next
            out = pods.run("bash", "-ec", "".join(lines), cwd=tmp_path).stdout
            assert f"{ACCOUNT}: one of 250.000 tokens taken and given back" in out and "health: SERVING" in out
            assert re.search(rf"^{ACCOUNT} .* closed +open ", out, re.M), "what status says of the account"
        assert name not in podman("volume", "ls", "-q").stdout + podman("pod", "ps", "--format={{.Name}}").stdout
    finally:
        pods.run(tmp_path / "scripts/pod", "down", check=False)


def test_rates_of_a_configmap_as_a_directory():
    with Pod("rates", "rates.configMapName=tables") as pod:
        pod.up()
        pod.provider_does({"status": 500})
        assert pod.checkout() == "fallback tax 7.30 provider-error"  # 10 %, not the 9.2 % of the single file


def sunk_flags(pod):
    return [json.loads(line) for path in pod.sink.glob("*.jsonl") for line in path.read_text().splitlines()]


def test_sigterm_drains_and_the_flags_reach_the_sink():
    with Pod("drain") as pod:
        pod.up()
        pod.provider_does({"status": 500})
        assert pod.checkout().startswith("fallback tax 6.71")
        podman("stop", "-t", "60", pod.of("spillway"))
        assert pod.state("spillway")["ExitCode"] == 0
        assert "drain" in pod.log()
        assert len(sunk_flags(pod)) == 1


def test_the_app_starts_before_the_sidecar():
    with Pod("early") as pod:
        pod.start("app")
        early = subprocess.Popen(["podman", "exec", pod.of("app"), "/opt/test/pod_early", ACCOUNT],
                                 stdout=subprocess.PIPE, text=True)
        assert early.stdout.readline() == "waiting\n"
        assert pod.checkout() == "none not-attached"
        pod.start("spillway")
        said = early.stdout.read()
        assert early.wait(pods.WATCHDOG_S) == 0
        # Bounded: some may call, and never silently all.
        assert said.startswith("attached after ") and int(said.split()[2]) >= 1
        assert pod.checkout() == "live tax 6.02 from the provider"


# The kubelet ends a native sidecar when the last ordinary container has ended; here the test does, and sees to the rest.
@pytest.mark.parametrize("code", [0, 1])
def test_a_job_completes_and_its_flags_are_safe(code):
    with Pod(f"job{code}") as pod:
        pod.provider_does({"status": 500})
        pod.start("spillway")
        pod.ready()
        script = f"for i in 0 1 2 3 4 5 6 7 8 9; do /opt/test/example_checkout || exit 9; done; exit {code}"
        pod.start("app")
        assert pod.exec("app", "/bin/sh", "-c", script, check=False).returncode == code
        podman("stop", "-t", "30", pod.of("app"))
        podman("kill", "-s", "TERM", pod.of("spillway"))
        assert pod.wait_end("spillway") == 0
        assert len(sunk_flags(pod)) == 10
