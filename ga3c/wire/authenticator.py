"""Lets only this run's agents connect: the password check of ZeroMQ's PLAIN mechanism.

libzmq asks it over an inproc socket (ZeroMQ RFC 27, ZAP) while a peer shakes hands, before it takes
a single message from that peer. Without it a stranger on this machine could send parts of one
message for ever: libzmq keeps all of them until the last one comes, whatever RCVHWM says.
"""

import secrets

import zmq

ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # given by the protocol
ZAP_VERSION = b"1.0"
DOMAIN = "ga3c"
ACCEPTED, REFUSED = b"200", b"400"


class Authenticator:
    """Answers libzmq's questions about who may connect. Owned by the frontend's thread."""

    def __init__(self, context: zmq.Context, password: str) -> None:
        """Make it before the server's socket, which refuses every peer until it exists."""
        self._password = password.encode()
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ZAP_ENDPOINT)

    @staticmethod
    def guard(server: zmq.Socket) -> None:
        """Let `server` take only peers that an authenticator accepts. Call before its bind."""
        server.setsockopt(zmq.PLAIN_SERVER, 1)
        server.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # no authenticator, no peers

    def answer(self) -> None:
        """Answer every question that waits."""
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
