"""A flame graph of the gateway: `python -m bench.profiling [--stream | --idle] [--seconds 15]`.

py-spy samples the gateway's processes while the generator keeps 32 connections busy, or while nothing happens. The
graph is an SVG below bench/build; wide bars are where the time goes. With --native it includes C functions.
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path

from bench.peers import FOLDER, install
from bench.peers import run as run_command
from bench.processes import BenchError
from bench.run import BUILD, PHASES, build, run_load
from bench.targets import OWN, start_targets

SETTLE_S = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Return 0 after the graph was written; 1 with the reason when it could not be."""
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description=__doc__.partition("\n")[0])
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--stream", action="store_true", help="streams instead of plain requests")
    load.add_argument("--idle", action="store_true", help="no requests at all")
    parser.add_argument("--seconds", type=int, default=15, help="length of the recording (15)")
    parser.add_argument("--rate", type=int, default=250, help="samples a second (250)")
    parser.add_argument("--native", action="store_true", help="also sample C functions, which slows the gateway")
    parser.add_argument("--port", type=int, default=19_480, help="first of the ports to use (19480)")
    parser.add_argument("--output", type=Path, default=BUILD / "profile.svg", help="file of the graph")
    options = parser.parse_args(arguments)
    try:
        record(options)
    except BenchError as error:
        print(f"profiling: {error}", file=sys.stderr)
        return 1
    print(options.output)
    return 0


def record(options: argparse.Namespace) -> None:
    """Start a gateway, keep it busy, and record it. Raises BenchError."""
    build()
    install("py-spy")
    phase = PHASES[1] if options.stream else PHASES[0]
    with tempfile.TemporaryDirectory(prefix="profile-") as name:
        folder = Path(name)
        starters = {"gateway": OWN["gateway"]}
        with start_targets(starters, options.port, folder, BUILD / "mock") as (_, gateway):
            if options.idle:
                load = threading.Timer(SETTLE_S, bool)
            else:
                load = threading.Thread(target=run_load, args=(phase, gateway, options.seconds + SETTLE_S, folder))
            load.start()
            command = [str(FOLDER / "py-spy" / "bin" / "py-spy"), "record", "--subprocesses", "--pid"]
            command += [str(gateway.process.pid), "--duration", str(options.seconds), "--rate", str(options.rate)]
            command += ["--output", str(options.output.resolve()), *(["--native"] if options.native else [])]
            run_command(command, folder)
            load.join()


if __name__ == "__main__":
    sys.exit(main())
