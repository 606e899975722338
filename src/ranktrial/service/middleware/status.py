"""The status of an answer, noted on its way out."""

from __future__ import annotations

from starlette.types import Message, Send


class StatusSend:
    """An ASGI ``send`` that notes the status of the answer; 0 before there is one."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    @classmethod
    def of(cls, send: Send) -> StatusSend:
        """The one that this is already, if somebody further out wants to know the status too."""
        return send if isinstance(send, cls) else cls(send)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)
