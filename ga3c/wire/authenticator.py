"""Lets only this run's agents connect: the password check of ZeroMQ's PLAIN mechanism.

libzmq asks the authenticator over an inproc socket (ZeroMQ RFC 27, ZAP) during a peer's handshake,
before it accepts any message from that peer. Without this check, a stranger on this machine could
send parts of one message for ever, and libzmq would keep them all until the last one, regardless of
RCVHWM.
"""

import secrets

import zmq

ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # fixed by the protocol
ZAP_VERSION = b"1.0"
DOMAIN = "ga3c"
ACCEPTED, REFUSED = b"200", b"400"


class Authenticator:
    """Answers libzmq's requests to admit a peer. Owned by the frontend's thread."""

    def __init__(self, context: zmq.Context, password: str) -> None:
        """Create it before the server's socket, which refuses every peer without it."""
        self._password = password.encode()
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ZAP_ENDPOINT)

    @staticmethod
    def guard(server: zmq.Socket) -> None:
        """Make `server` admit only peers that an authenticator accepts. Call before its bind."""
        server.setsockopt(zmq.PLAIN_SERVER, 1)
        server.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # refuses all peers without an authenticator

    def answer(self) -> None:
        """Answer every pending request."""
        while True:
            try:
                version, request, _, _, _, mechanism, *credentials = self.socket.recv_multipart(
                    zmq.DONTWAIT
                )
            except zmq.Again:
                return
            known = (
                version == ZAP_VERSION
                and mechanism == b"PLAIN"
                and secrets.compare_digest(credentials[-1], self._password)
            )
            status = ACCEPTED if known else REFUSED
            self.socket.send_multipart([ZAP_VERSION, request, status, b"", b"", b""])
