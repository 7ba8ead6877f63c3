"""What can go wrong between a plugin and a runtime, as types."""

from __future__ import annotations


class NRIError(Exception):
    """Root of every error of this package."""


class RefusalError(NRIError):
    """A handler's "no": the runtime gets the text and gives up what it was about to do.

    At CreateContainer the container is not made, at StartContainer it does not start, at UpdateContainer nothing
    changes. The text reaches the runtime's client, so the kubelet shows it in the pod's events.
    """


class ConnectionLostError(NRIError):
    """The other side is gone, or this side has closed the connection."""


class ProtocolError(ConnectionLostError):
    """The other side said something that is no NRI. The connection was closed: nothing after it can be trusted."""


class OversizedError(NRIError):
    """A message of our own is too large for the other side; it was not sent."""


class MisuseError(NRIError):
    """A call that would wait for itself, or that was made without a connection."""


class RemoteError(NRIError):
    """The other side answered a call with an error.

    Attributes:
        code: gRPC status code, for example 12 for a method that it does not know.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message or f"status {code}")


class CallTimeoutError(NRIError):
    """The other side did not answer a call in time; its answer, should it come, is dropped."""
