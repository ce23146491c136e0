"""clients/c/spillway.h as applications compile it: languages, compilers, strict warnings, several inclusions."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = [ROOT / "clients/c/spillway.h", *sorted((ROOT / "tests/abi/frozen").glob("*.h"))]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
C = [("gcc", "c11"), ("gcc", "c17"), ("clang", "c11"), ("clang", "c17")]
CXX = [("g++", "c++17"), ("clang++", "c++17"), ("g++", "c++20")]


def functions_of(header):
    names = re.findall(r"^static inline [^;{=]*?\b(spw_\w+)\(", header.read_text(), re.M)
    assert len(names) > 100
    return sorted(set(names))


def use_all(header):
    """A program that takes the address of every function, so that no warning about unused ones hides the others."""
    uses = ",\n".join(f"    (any_fn)({name})" for name in functions_of(header))
    return (f'#include "{header}"\n#include "{header}"\n'  # twice: the guard holds
            "typedef void (*any_fn)(void);\n"
            f"static const any_fn all[] = {{\n{uses}}};\n"
            "int main(void) { return sizeof all / sizeof all[0] > 100 && all[0] ? 0 : 1; }\n")


def compile_and_run(tmp_path, compiler, standard, suffix, text, *options):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    source, program = tmp_path / f"use.{suffix}", tmp_path / "use"
    source.write_text(text)
    done = subprocess.run([compiler, f"-std={standard}", *options, source, "-o", program, "-pthread"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    assert subprocess.run([program]).returncode == 0


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.name)
@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
@pytest.mark.parametrize("compiler, standard", C)
def test_c(tmp_path, compiler, standard, optimise, header):
    compile_and_run(tmp_path, compiler, standard, "c", use_all(header), *STRICT, optimise)


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.name)
@pytest.mark.parametrize("compiler, standard", CXX)
def test_cxx(tmp_path, compiler, standard, header):
    compile_and_run(tmp_path, compiler, standard, "cpp", use_all(header), *STRICT, "-O2")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_two_translation_units(tmp_path, compiler):
    """Each attaches a client of its own in one process; both follow a fork."""
    part = ('#include "{header}"\n'
            "int {name}(void);\n"
            "int {name}(void)\n{{\n"
            "    static struct spw_client client;\n"
            "    struct spw_attach_options options = {{\"/nonexistent\", \"/nonexistent\", SPW_UNATTACHED_DENY, 0, 0}};\n"
            "    enum spw_status status = spw_attach(&client, &options);\n"
            "    spw_detach(&client);\n"
            "    return status == SPW_STATUS_NO_SEGMENT ? 0 : 1;\n}}\n")
    sources = []
    for name in ("one", "two"):
        sources.append(tmp_path / f"{name}.c")
        sources[-1].write_text(part.format(header=HEADERS[0], name=name))
    sources.append(tmp_path / "main.c")
    sources[-1].write_text("int one(void);\nint two(void);\nint main(void)\n{\n    return one() + two() + one();\n}\n")
    program = tmp_path / "program"
    done = subprocess.run([compiler, "-std=c11", *STRICT, *sources, "-o", program, "-pthread"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[:4000]
    assert subprocess.run([program]).returncode == 0


def test_the_example_in_one_command(tmp_path):
    """The command that stands in the example's first lines, as it stands there."""
    example = ROOT / "clients/c/example_checkout.c"
    command = re.search(r"cc (-I clients/c .*?) -o example_checkout (.*?) &&", example.read_text())
    program = tmp_path / "example_checkout"
    done = subprocess.run(["cc", *command.group(1).split(), "-o", program, *command.group(2).split()], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    # Without a sidecar it says that no rate is known, and charges no guess.
    ran = subprocess.run([program], capture_output=True, text=True,
                         env={**os.environ, "SPILLWAY_PUB_DIR": str(tmp_path), "SPILLWAY_RW_DIR": str(tmp_path)})
    assert ran.returncode == 2
    assert ran.stdout.startswith("none")


def test_libc_is_all_it_needs():
    allowed = re.compile(r"^(errno|fcntl|poll|pthread|stdbool|stddef|stdint|stdio|stdlib|string|time|unistd|sys/\w+)\.h$")
    for header in HEADERS:
        includes = re.findall(r'^#include [<"](.*?)[>"]', header.read_text(), re.M)
        assert includes and all(allowed.match(name) for name in includes), includes


def test_it_can_be_read_in_an_evening():
    """One file that an application's reviewers have to read: its size, and the documentation of what they call."""
    lines = HEADERS[0].read_text().split("\n")
    assert len(lines) < 2500
    assert max(map(len, lines)) <= 164
    for name in ("spw_attach", "spw_detach", "spw_acquire", "spw_peek", "spw_report", "spw_quote", "spw_order_placed",
                 "spw_rate_lookup", "spw_give_up", "spw_reservation_confirm"):
        at = next(i for i, line in enumerate(lines) if re.match(rf"static inline .*\b{name}\(", line))
        assert lines[at - 1].endswith("*/"), f"{name} has no documentation before it"


def test_a_32_bit_target_is_refused(tmp_path):
    source = tmp_path / "use.c"
    source.write_text(f'#include "{HEADERS[0]}"\nint main(void) {{ return 0; }}\n')
    # The C library's headers serve both, but for a list of functions that are only stubs: none of them matters here.
    (tmp_path / "gnu").mkdir()
    (tmp_path / "gnu/stubs-32.h").write_text("")
    triplet = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
    done = subprocess.run(["gcc", "-m32", "-fsyntax-only", f"-I{tmp_path}", f"-I/usr/include/{triplet}", source],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "64-bit" in done.stderr
