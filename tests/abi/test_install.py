"""What is installed serves an application that knows nothing of this repository: by pkg-config and by find_package."""
import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["SPILLWAY_BUILD"])
HEADER = """\
#include "spillway.h"
int main(void)
{
    static struct spw_client client;
    enum spw_status status = spw_attach(&client, NULL);
    puts(spw_status_text(status));
    return status == SPW_STATUS_NO_SEGMENT ? 0 : 1;
}
"""
LIBRARY = """\
#include "libspillway.h"
#include <stddef.h>
int main(void)
{
    struct spillway *client = spillway_new(NULL, NULL, 1);
    uint64_t ticket[8];
    struct spillway_decision decision;
    int may_call = client ? spillway_acquire(client, "main", NULL, 1, 0, ticket, &decision) : 1;
    spillway_destroy(client);
    return may_call || decision.verdict != 3;
}
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(shop LANGUAGES C CXX)
find_package(spillway 0.1 REQUIRED)
add_executable(header header.c)
target_link_libraries(header PRIVATE spillway::header)
add_executable(header_cxx header.cc)
target_link_libraries(header_cxx PRIVATE spillway::header)
add_executable(library library.c)
target_link_libraries(library PRIVATE spillway::library)
"""


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Installed, and then moved: nothing may remember where it was installed to."""
    top = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", top / "first", "--component", "client")
    (top / "first").rename(top / "usr")
    return top / "usr"


@pytest.fixture
def shop(tmp_path):
    for name, text in (("header.c", HEADER), ("header.cc", HEADER), ("library.c", LIBRARY), ("CMakeLists.txt", PROJECT)):
        (tmp_path / name).write_text(text)
    return tmp_path


def try_it(program, prefix):
    [library] = prefix.rglob("libspillway.so.1")
    empty = program.parent
    env = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "SPILLWAY_PUB_DIR": str(empty / "pub"),
                        "SPILLWAY_RW_DIR": str(empty / "rw")}
    return run(program, env=env)


@pytest.mark.parametrize("package, source", [("spillway", "header.c"), ("libspillway", "library.c")])
def test_by_pkg_config(prefix, shop, package, source):
    [directory] = {p.parent for p in prefix.rglob("*.pc")}
    env = os.environ | {"PKG_CONFIG_PATH": str(directory), "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1"}
    words = run("pkg-config", "--cflags", "--libs", f"{package} >= 0.1", env=env).split()
    run("cc", "-Wall", "-Werror", shop / source, *words, "-o", shop / "program")
    try_it(shop / "program", prefix)


def test_by_find_package(prefix, shop):
    run("cmake", "-S", shop, "-B", shop / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", shop / "build")
    for name in ("header", "header_cxx", "library"):
        try_it(shop / "build" / name, prefix)


def test_programs_have_a_component_of_their_own(tmp_path):
    run("cmake", "--install", BUILD, "--prefix", tmp_path, "--component", "runtime")
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "bin/spillwayctl", "bin/spillwayd"]
