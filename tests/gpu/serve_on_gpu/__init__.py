# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures the server on the GPUs of a machine, as its clients see it; serve-on-gpu packs and runs it."""
