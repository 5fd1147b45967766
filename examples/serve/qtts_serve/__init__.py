# SPDX-License-Identifier: LGPL-2.1-or-later
"""Serves qttssrc over HTTP and WebSocket. `python3 -m qtts_serve --help`; as an ASGI application: app.create_app()."""
