#!/usr/bin/env python3
"""What README.md shows, works: check_readme.py BUILD, the directory that cmake made.

The C block is the example and compiles by the command above it, the configuration parses, the requests and commands
name what is in it, the promises' commands find tests, and every link and path of the README and docs/ leads somewhere.
Prints one line per fault, and exits 1.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "clients/c/example_checkout.c"
PAGES = [ROOT / "README.md", ROOT / "shm/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:bench|clients|docs|helm|proto|scripts|shm|sidecar|tests)/[\w./-]+)`")

faults = []


def expect(holds, fault):
    if not holds:
        faults.append(fault)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=ROOT, **more)


def check_example(directory):
    shown, = blocks("c")
    text = EXAMPLE.read_text()
    expect(shown == text[text.index("#include"):], "the C block is not clients/c/example_checkout.c")
    command, = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("cc ")]
    words = shlex.split(command)
    words[words.index("-o") + 1] = directory / "example_checkout"
    done = run(*words, "-Wall", "-Wextra", "-Werror")
    expect(done.returncode == 0, f"{command}: {done.stderr}")


def check_configuration(directory):
    text, = blocks("yaml")
    file = directory / "spillway.yaml"
    file.write_text(text)
    done = run(BUILD / "bin/spillwayd", "--print-segment-bytes", "--config", file)
    expect(done.returncode == 0, f"the configuration: {done.stderr}")
    return yaml.safe_load(text)


def check_requests(conf):
    bodies = [json.loads(body) for block in blocks("sh") for body in re.findall(r"-d '(\{.*?\})'", block, re.S)]
    expect(bodies, "no request is shown")
    for body in bodies:
        account = body.get("account")
        expect(account is None or account in conf["accounts"], f"the configuration has no account {account}")
        integrations = conf["accounts"].get(account, {}).get("integrations", {})
        expect(account is None or body["integration"] in integrations, f"no integration {body.get('integration')}")
    for port in re.findall(r"http://(127\.0\.0\.1:\d+)/spillway/", README):
        expect(port == conf["listen"]["quote"], f"{port} is not the configuration's listen.quote")


def check_commands(conf):
    commands = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()
                if line.startswith("spillwayctl ")]
    expect(commands, "no spillwayctl is shown")
    for command in commands:
        words = command.split()[1:]
        name = words[:1] if words[0] == "status" else words[:2]
        help_ = run(BUILD / "bin/spillwayctl", *name, "--help")
        expect(help_.stdout.startswith(f"Usage: spillwayctl {' '.join(name)}"), f"{command}: {help_.stderr}")
        for option in re.findall(r"--[\w-]+", command):
            expect(f"  {option} " in help_.stdout, f"{command}: no option {option}")
        if name == ["limits", "set"]:
            expect(words[2] in conf["accounts"], f"{command}: no such account")


def check_promises():
    # In a table's cell a bar is written with a backslash, which a reader of the page does not see.
    rows = [row.replace("\\|", "|") for row in re.findall(r"^\| .* \| (`.*`) \|$", README, re.M)]
    commands = [command for row in rows for command in re.findall(r"`(.+?)`", row)]
    expect(len(commands) >= 5, "the table of promises is not where it was")
    for command in commands:
        words = shlex.split(command)
        if words[0] == "ctest":
            del words[1:3]  # the preset only names the directory
            expect("Total Tests: 0" not in run(*words, "--test-dir", BUILD, "-N").stdout, f"{command}: no test")
        elif words[0] == "scripts/bench":
            expect((ROOT / "bench" / f"{words[1]}.c").exists(), f"{command}: no such benchmark")
    presets = {one["name"] for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    expect(set(re.findall(r"--preset (\w+)", README)) <= presets, "a preset is shown that there is not")


def check_places():
    for page in PAGES:
        text = page.read_text()
        name = page.relative_to(ROOT)
        for target in LINK.findall(text):
            if "://" not in target:
                expect((page.parent / target).exists(), f"{name}: the link {target} leads nowhere")
        for path in PATH.findall(text):
            expect((ROOT / path).exists(), f"{name}: there is no {path}")


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        check_example(directory)
        conf = check_configuration(directory)
    check_requests(conf)
    check_commands(conf)
    check_promises()
    check_places()
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"check_readme: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
