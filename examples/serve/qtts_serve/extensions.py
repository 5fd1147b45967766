# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of extensions of a request's scope (ASGI). Connections of qtts-serve have them; other servers may not."""
# Takes the fields that follow the last chunk of the answer.
TRAILERS = "qtts.trailers"
# Called before http.response.start, it lets the header wait for the piece of the body that is sent next.
HOLD_NEXT = "qtts.hold_next"
