"""Ranks in separate network namespaces, connected by a network only."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RANKS, LIMIT = 3, 6.0
BLOCK = 2 * 4 * 256 * 32 * 4  # k and v, 4 heads, 256 rows, 32 columns of float32


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def namespaces():
    """Yields the ranks' namespaces, joined by a bridge in another one. The machine's own network is not changed."""
    names = [f"isentrope-{os.getpid()}-{rank}" for rank in range(RANKS)]
    switch = f"isentrope-{os.getpid()}-switch"
    created = []
    try:
        for name in (switch, *names):
            ip("netns", "add", name)
            created.append(name)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            ip("link", "add", port, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.0.0.{rank + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names, switch
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        pytest.skip(f"network namespaces need iproute2 and the right to make them: {str(reason).strip()}")
    finally:
        for name in created:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def read_until(process, pattern):
    """Returns the first matching line of the process. Raises AssertionError if it ends first."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"no line like {pattern!r} in:\n{''.join(lines)}")


def test_a_rank_that_is_cut_off(namespaces):
    names, switch = namespaces
    script = Path(__file__).with_name("network_rank.py")
    processes = []
    try:
        for rank, name in enumerate(names):
            command = ["ip", "netns", "exec", name, sys.executable, str(script), str(rank), str(RANKS), "10.0.0.1:29400",
                       str(LIMIT)]  # fmt: skip
            environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0"}
            processes.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        for rank, process in enumerate(processes):
            sent = int(read_until(process, r"^step 3 sent (\d+)").group(1))
            # Causal: a block is sent to every later rank. Other traffic is headers and acknowledgements.
            least = BLOCK * (RANKS - 1 - rank)
            assert least <= sent <= 1.15 * least + 20_000, (rank, sent, least)
        ip("-n", switch, "link", "set", f"port{RANKS - 1}", "down")
        for rank, process in enumerate(processes):
            reported = read_until(process, r"reported after (\S+) s: (.*)")
            assert float(reported.group(1)) < LIMIT + 4 and f"rank {rank} of {RANKS} must hear from" in reported.group(2)
    finally:
        for process in processes:
            process.kill()
            process.wait()
