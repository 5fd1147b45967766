# SPDX-License-Identifier: LGPL-2.1-or-later
"""Bytes of the buffers in an appsink. Calls GStreamer by ctypes: four calls of GObject introspection for each buffer cost
three times as much, and a server of 1,000 listeners makes 50,000 a second.

The functions that may take a lock release Python's lock: a streaming thread that holds the sink's may wait for it.
"""
import ctypes

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401  (GstApp loads libgstapp)

_APP, _CORE = "libgstapp-1.0.so.0", "libgstreamer-1.0.so.0"


def _function(library, name, result, *arguments):
    function = library[name]
    function.restype, function.argtypes = result, arguments
    return function


_pull_sample = _function(ctypes.CDLL(_APP), "gst_app_sink_try_pull_sample", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_unref = _function(ctypes.CDLL(_CORE), "gst_mini_object_unref", None, ctypes.c_void_p)
_buffer_of = _function(ctypes.PyDLL(_CORE), "gst_sample_get_buffer", ctypes.c_void_p, ctypes.c_void_p)
_size_of = _function(ctypes.PyDLL(_CORE), "gst_buffer_get_size", ctypes.c_size_t, ctypes.c_void_p)
_extract = _function(ctypes.PyDLL(_CORE), "gst_buffer_extract", ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                     ctypes.c_char_p, ctypes.c_size_t)
_pointer_of = _function(ctypes.pythonapi, "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new_bytes = _function(ctypes.pythonapi, "PyBytes_FromStringAndSize", ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)


class Sink:
    """An appsink."""

    def __init__(self, element):
        self._element = element  # keeps it alive
        self._address = _pointer_of(element.__gpointer__, None)

    def pull(self, wait=0):
        """The next buffer's bytes; None if there is none within `wait` nanoseconds."""
        sample = _pull_sample(self._address, wait)
        if not sample:
            return None
        try:
            buffer = _buffer_of(sample)
            size = _size_of(buffer)
            data = _new_bytes(None, size)  # nobody else has it yet, so it may be written
            _extract(buffer, 0, data, size)
        finally:
            _unref(sample)
        return data

    def pull_all(self):
        """The bytes of all buffers that are there."""
        parts = []
        while (part := self.pull()) is not None:
            parts.append(part)
        return b"".join(parts)
