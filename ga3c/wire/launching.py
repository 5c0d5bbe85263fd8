"""Builds the launcher of a run's agents: on this machine, on others, or on a Ray cluster."""

from typing import Any

from agents.cluster import Cluster
from agents.launchers import Launcher, LocalLauncher
from agents.messages import Kind
from agents.nodes import Orders
from agents.notes import encode_note
from ga3c.settings.service import HostsConfig
from ga3c.wire.frontend import Frontend
from ga3c.wire.hosts import Hosts


def build_launcher(
    config: HostsConfig, game: str, frontend: Frontend, local: LocalLauncher
) -> Launcher:
    """A launcher for agents of `game`: `local`, or one that places them on other machines too."""
    if frontend.listening is None:
        return local

    def order(host: str, values: dict[str, Any]) -> None:
        frontend.send(host, encode_note(Kind.ORDER, values))

    cluster = None
    if config.launcher == "ray":
        module, _, _ = game.rpartition(":")
        orders = Orders(
            address=config.ray_address,
            connect=frontend.listening.endpoint,
            service=frontend.listening.keys.public,
            modules=[module] if module else [],
        )
        cluster = Cluster(orders, frontend.authenticator.allow)
    hosts = Hosts(
        local=local,
        game=game,
        room_here=config.agents_here,
        order=order,
        peers=frontend.peers,
        refused=lambda: dict(frontend.authenticator.refused),
        cluster=cluster,
        pack=config.compress,
    )
    frontend.on_host = hosts.report
    return hosts
