"""Imputes by a cluster of Ray of its own; run in a network namespace, in which nobody else is."""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1  # of the loopback device, in Linux


def raise_loopback():
    """Switches the loopback device of a new network namespace on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, GET_FLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", found)[1]
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))


def reach_others():
    """Gives this network an address that other machines could reach, which Ray prefers to the loopback."""
    for command in ("addr add 10.9.8.7/24 dev lo", "route add default via 10.9.8.1 dev lo"):
        subprocess.run(["ip", *command.split()], check=True, timeout=10)


def main():
    """Runs a function of `killing` over units and prints how it ended."""
    raise_loopback()
    if shutil.which("ip") is not None:
        reach_others()
    here = str(Path(__file__).parent)
    sys.path.insert(0, here)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"  # nobody else is in this network
    import killing

    from halfseen.distributed.engines import RayEngine

    function, source, model, out = sys.argv[1:]
    if function == "fit":
        print(killing.fit_by(RayEngine(), source, out, [model]))
        return
    print(killing.impute_by(RayEngine(), function, source, model, out))


if __name__ == "__main__":
    main()
