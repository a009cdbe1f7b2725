"""Kills random workers while the gateway serves."""

import os
import random
import signal

import gevent
from support.gateways import GatewayProcess


def kill_by_chance(gateway: GatewayProcess, rounds: int, workers: int) -> int:
    """Kill -9 a random worker, `rounds` times and when all workers are running. Return the number of kills."""
    chance, kills = random.Random(2), 0
    while kills < rounds:
        gevent.sleep(chance.uniform(0.15, 0.6))
        alive = gateway.workers()
        if len(alive) < workers:
            continue
        try:
            os.kill(chance.choice(alive), signal.SIGKILL)
        except ProcessLookupError:
            continue
        kills += 1
    return kills
