"""Admits only this run's agents, and machines whose keys are allowed.

Local agents authenticate by password (ZeroMQ's PLAIN mechanism), remote ones by key (CURVE).

libzmq asks the authenticator over an inproc socket (ZeroMQ RFC 27, ZAP) during a peer's handshake,
before it accepts any message from that peer. Without this check, a stranger on this machine could
send the parts of a multipart message endlessly: libzmq buffers all parts until the last one
arrives, regardless of RCVHWM.
"""

import secrets
from collections import Counter
from collections.abc import Mapping

import zmq
import zmq.utils.z85

from agents.keys import Pair

MOST_REFUSED = 1000  # addresses; after that, counting stops
ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # fixed by the protocol
ZAP_VERSION = b"1.0"
DOMAIN = "ga3c"
ACCEPTED, REFUSED = b"200", b"400"


class Authenticator:
    """Answers libzmq's authentication requests. Owned by the frontend's thread."""

    def __init__(
        self, context: zmq.Context, password: str, allowed: Mapping[str, str] | None = None
    ) -> None:
        """Create it before the server's socket, which refuses every peer without it.

        Args: allowed: maps public keys to the names of their owners.
        """
        self._password = password.encode()
        self._allowed = {zmq.utils.z85.decode(key): name for key, name in (allowed or {}).items()}
        self.refused: Counter[str] = Counter()
        """Refusals by address, of peers that presented a key."""
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ZAP_ENDPOINT)

    def allow(self, key: str, name: str) -> None:
        """Admit the owner of this public key from now on. Called by any thread."""
        self._allowed[zmq.utils.z85.decode(key)] = name

    @staticmethod
    def guard(server: zmq.Socket, keys: Pair | None = None) -> None:
        """Make `server` admit only peers that an authenticator accepts. Call before its bind.

        Args: keys: the server's own, for peers with keys; None: for peers with the password.
        """
        if keys is None:
            server.setsockopt(zmq.PLAIN_SERVER, 1)
        else:
            server.setsockopt(zmq.CURVE_SERVER, 1)
            server.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
        server.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an authenticator, refuse all peers

    def answer(self) -> None:
        """Answer every pending request."""
        while True:
            try:
                version, request, _, address, _, mechanism, *credentials = (
                    self.socket.recv_multipart(zmq.DONTWAIT)
                )
            except zmq.Again:
                return
            user: str | None = None
            if mechanism == b"CURVE":
                user = self._allowed.get(credentials[0])
                if user is None and len(self.refused) < MOST_REFUSED:
                    self.refused[address.decode(errors="replace")] += 1
            elif mechanism == b"PLAIN" and secrets.compare_digest(credentials[-1], self._password):
                user = ""
            known = version == ZAP_VERSION and user is not None
            status = ACCEPTED if known else REFUSED
            name = (user or "").encode()
            self.socket.send_multipart([ZAP_VERSION, request, status, b"", name, b""])
