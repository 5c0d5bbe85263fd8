"""`ga3c agents`: plays on this machine for a service on another one."""

import re
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from agents import keys
from agents.headers import MAX_NAME, MOST_AGENTS
from agents.link import Curve
from agents.machine import available_cores
from agents.orders import Host
from agents.signals import ending

ADDRESS = re.compile(r"tcp://(?:\w[\w.-]*|\[[\w:.%]+\]):(\d{1,5})", re.ASCII)
MOST_PORT = 65535


@dataclass(frozen=True)
class Config:
    """Run agents for a service on another machine that was started with --listen."""

    connect: str
    """Address of the service: tcp://HOST:PORT."""
    key: Path
    """File with this machine's secret key (ga3c keys); the service must --allow the public key."""
    service: Path
    """File with the service's public key."""
    agents: int = field(default_factory=available_cores)
    """Maximum number of agent processes; by default one per available core."""
    name: str = socket.gethostname()
    """Name of this machine in the run's log."""
    modules: tuple[str, ...] = ()
    """Modules with your own environments (module:Id-v0) that the service may ask for."""

    def __post_init__(self) -> None:
        address = ADDRESS.fullmatch(self.connect)
        if not (address and 1 <= int(address[1]) <= MOST_PORT):
            raise ValueError(
                f"connect {self.connect}: must be tcp://HOST:PORT, with a port of 1 to {MOST_PORT}"
            )
        if not 1 <= self.agents <= MOST_AGENTS:
            raise ValueError(f"agents {self.agents}: must be 1 to {MOST_AGENTS}")
        if len(self.name) > MAX_NAME or not self.name.isprintable():
            raise ValueError(f"name {self.name!r}: must be at most {MAX_NAME} printable characters")
        self.curve  # noqa: B018  raises ValueError if a key cannot be read

    @property
    def curve(self) -> Curve:
        """The keys of the connection. Raises ValueError."""
        (service, *more) = keys.public([self.service])
        if more:
            raise ValueError(f"service {self.service}: must hold one key, not {1 + len(more)}")
        return Curve(service, *keys.own(self.key))


def run(config: Config) -> int:
    """Play until a signal arrives. Returns the exit code 130."""
    host = Host(
        connect=config.connect,
        curve=config.curve,
        agents=config.agents,
        name=config.name,
        modules=config.modules,
    )
    cores = f"up to {config.agents} agents" if config.agents > 1 else "one agent"
    print(
        f"ga3c: {config.name} plays with {cores} for {config.connect}; Ctrl-C stops it", flush=True
    )
    for number in ending():
        signal.signal(number, host.stop)
    try:
        host.obey()
    finally:
        host.close()
    print("ga3c: ended", file=sys.stderr)
    return 130
