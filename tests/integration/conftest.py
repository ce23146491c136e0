"""Fixtures of the tests that run real programs."""
import os
import sys

import pytest

# A test starts programs, and gRPC's handlers around fork() wait for threads of its own that may never come. No child
# of a test uses gRPC's state.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

pytest.register_assert_rewrite("harness")

from harness import Place, uring_refused  # noqa: E402: rewritten first


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.failed_somewhere = True


@pytest.fixture(params=[os.environ["SPW_TEST_BACKEND"]] if "SPW_TEST_BACKEND" in os.environ
                else ["io_uring", "epoll"])
def backend(request):
    """Both back-ends of the event loop, one after the other; or the one of SPW_TEST_BACKEND, for every test there is."""
    if request.param == "io_uring" and uring_refused():
        pytest.skip(f"this kernel refuses io_uring: {uring_refused()}")
    return request.param


@pytest.fixture
def tls(place):
    """A sidecar whose control API is served by certificate too."""
    from certificates import TlsDoor
    return TlsDoor(place)


@pytest.fixture
def place(request):
    """A Place on the test's back-end; after a failure the directory stays and the logs are shown."""
    backend = request.getfixturevalue("backend") if "backend" in request.fixturenames else None
    one = Place(backend)
    yield one
    failed = getattr(request.node, "failed_somewhere", False)
    if failed:
        for sidecar in one.sidecars:
            print(f"---- {sidecar.log_path}\n{sidecar.log()[-6000:]}", file=sys.stderr)
    one.close(failed)
