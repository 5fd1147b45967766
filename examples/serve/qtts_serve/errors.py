# SPDX-License-Identifier: LGPL-2.1-or-later
"""Errors that a client sees, in OpenAI's form."""
import logging

log = logging.getLogger("qtts_serve")


class ApiError(Exception):
    """`message` says what is wrong and what to do; `param` names the field; `code` is for programs."""

    TYPES = {429: "overloaded", 500: "server_error", 503: "unavailable"}

    def __init__(self, status, message, param=None, code=None, retry_after=None, headers=None):
        super().__init__(message)
        self._headers = headers or {}
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    def body(self):
        return {"error": {"message": self.message, "type": self.TYPES.get(self.status, "invalid_request_error"), "param": self.param,
                          "code": self.code}}

    def log(self):
        """Without the message, which may have words of the request."""
        log.info("refused with %d: %s", self.status, self.code or self.body()["error"]["type"])

    def headers(self):
        return self._headers if self.retry_after is None else {**self._headers, "retry-after": str(self.retry_after)}


def bad_field(param, message):
    return ApiError(400, f'"{param}" {message}', param, "invalid_value")


def mistake():
    """The answer to a client after an unexpected exception."""
    return ApiError(500, "The server failed: a mistake in it.", code="internal")
