# SPDX-License-Identifier: LGPL-2.1-or-later
"""Bytes of the buffers in an appsink, and the message that comes before the first of them. Calls GStreamer by ctypes: four
calls of GObject introspection for each buffer cost three times as much, and a server of 1,000 listeners makes 50,000 a
second; a message costs 0.1 ms, in which the first sound waits.

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
_set_max_buffers = _function(ctypes.CDLL(_APP), "gst_app_sink_set_max_buffers", None, ctypes.c_void_p, ctypes.c_uint)
_unref = _function(ctypes.CDLL(_CORE), "gst_mini_object_unref", None, ctypes.c_void_p)
_buffer_of = _function(ctypes.PyDLL(_CORE), "gst_sample_get_buffer", ctypes.c_void_p, ctypes.c_void_p)
_size_of = _function(ctypes.PyDLL(_CORE), "gst_buffer_get_size", ctypes.c_size_t, ctypes.c_void_p)
_peek = _function(ctypes.CDLL(_CORE), "gst_bus_peek", ctypes.c_void_p, ctypes.c_void_p)
_pop = _function(ctypes.CDLL(_CORE), "gst_bus_pop", ctypes.c_void_p, ctypes.c_void_p)
_has_name = _function(ctypes.PyDLL(_CORE), "gst_message_has_name", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_structure_of = _function(ctypes.PyDLL(_CORE), "gst_message_get_structure", ctypes.c_void_p, ctypes.c_void_p)
_get_signed, _get_unsigned = (
    _function(ctypes.PyDLL(_CORE), f"gst_structure_get_{kind}", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    for kind in ("int64", "uint64"))
_extract = _function(ctypes.PyDLL(_CORE), "gst_buffer_extract", ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                     ctypes.c_char_p, ctypes.c_size_t)
_pointer_of = _function(ctypes.pythonapi, "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new_bytes = _function(ctypes.pythonapi, "PyBytes_FromStringAndSize", ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)


def _address_of(element):
    return _pointer_of(element.__gpointer__, None)


class Sink:
    """An appsink."""

    def __init__(self, element):
        self._element = element  # keeps it alive
        self._address = _address_of(element)

    def set_max_buffers(self, count):
        _set_max_buffers(self._address, count)

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


class Reports:
    """The element's messages on a bus that only this thread reads, as far as they are frequent or urgent."""

    def __init__(self, bus):
        self._bus = bus  # keeps it alive
        self._address = _address_of(bus)
        self._signed, self._unsigned = ctypes.c_int64(), ctypes.c_uint64()

    def pop_start(self):
        """Takes the next message of the bus if it is "qtts-utterance-started". Returns its seed, first-frame-latency and
        running-time; None, and leaves the message, otherwise."""
        message = _peek(self._address)
        if not message:
            return None
        try:
            if not _has_name(message, b"qtts-utterance-started"):
                return None
            _unref(_pop(self._address))
            structure = _structure_of(message)
            return (self._get(_get_signed, self._signed, structure, b"seed"),
                    self._get(_get_unsigned, self._unsigned, structure, b"first-frame-latency"),
                    self._get(_get_unsigned, self._unsigned, structure, b"running-time"))
        finally:
            _unref(message)

    def pending(self, drop_progress):
        """Whether there is a message on the bus. `drop_progress`: first drops those at the front that are
        "qtts-text-progress"."""
        while message := _peek(self._address):
            drops = drop_progress and _has_name(message, b"qtts-text-progress")
            _unref(message)
            if not drops:
                return True
            _unref(_pop(self._address))
        return False

    @staticmethod
    def _get(function, number, structure, field):
        if not function(structure, field, ctypes.byref(number)):
            raise KeyError(field.decode())
        return number.value
