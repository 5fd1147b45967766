# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ogg Opus (RFC 7845), by libopus: whatever sound is given leaves at once, but for less than 10 ms and the 6.5 ms by which the
encoder looks ahead. oggmux keeps one more packet back, and opusenc takes twice the processor time of the codec.
"""
import ctypes
import functools
import random
import struct
import zlib

# At 64 kbit/s, complexity 5 sounds as complexity 10 at 32 kbit/s (PESQ 4.37 and 4.36, bundled voice), and takes a sixth of the
# processor time.
BITRATE, COMPLEXITY = 64_000, 5
# Lengths of packets, in units of 10 ms. A packet of 80 ms is a frame of the model: four of Opus, made in one call, in which
# Python's lock is released. The others are for a first frame whose silence was cut, and for the end.
LENGTHS = (8, 4, 2, 1)
UNIT = 0.01  # seconds
LOOK_AHEAD = 0.0065  # seconds
HELD = UNIT + LOOK_AHEAD  # seconds of sound that are kept back at most

_LIBRARY = "libopus.so.0"
_APPLICATION_AUDIO = 2049
_SET_BITRATE, _SET_VBR, _SET_COMPLEXITY, _GET_LOOKAHEAD = 4002, 4006, 4010, 4027
_MOST_BYTES = 4000  # of a packet

_BEGINS, _ENDS = 2, 4  # flags of a page
_MOST_LACING = 255  # of a page
_PAGE = struct.Struct("<4sBBqIII")  # the header, as far as the number of lacing values
_NO_GRANULE = 0
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@functools.cache
def _library():
    """OSError if it is not installed."""
    library = ctypes.CDLL(_LIBRARY)
    library.opus_encoder_create.restype = ctypes.c_void_p
    library.opus_get_version_string.restype = ctypes.c_char_p
    library.opus_encoder_destroy.argtypes = [ctypes.c_void_p]
    library.opus_encode.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int32]
    return library


def available():
    """Whether libopus is installed."""
    try:
        return bool(_library())
    except OSError:
        return False


def checksum(page):
    """The CRC of Ogg, as in the page. It is zlib's with the bits of each byte in the other order, and without its
    inversions."""
    return (zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF).to_bytes(4, "big").translate(_REVERSED)


class Pages:
    """Packets as pages of a logical stream."""

    def __init__(self, serial):
        self._serial = serial
        self._count = 0

    def page(self, packets, granule, flags=0):
        """One page with these packets, which have to fit."""
        lacing = b"".join(b"\xff" * (len(packet) // 255) + bytes((len(packet) % 255,)) for packet in packets)
        page = b"".join((_PAGE.pack(b"OggS", 0, flags, granule, self._serial, self._count, 0), bytes((len(lacing),)), lacing,
                         *packets))
        self._count += 1
        return b"".join((page[:22], checksum(page), page[26:]))


class Stream:
    """Samples (S16LE, mono) of one utterance, at a rate that Opus has, as Ogg Opus. Not for several threads at once."""

    def __init__(self, rate):
        library = _library()
        error = ctypes.c_int()
        self._state = ctypes.c_void_p(library.opus_encoder_create(rate, 1, _APPLICATION_AUDIO, ctypes.byref(error)))
        if error.value:
            raise RuntimeError(f"libopus: error {error.value}")
        for request, value in ((_SET_BITRATE, BITRATE), (_SET_VBR, 0), (_SET_COMPLEXITY, COMPLEXITY)):
            library.opus_encoder_ctl(self._state, request, ctypes.c_int(value))
        look_ahead = ctypes.c_int()
        library.opus_encoder_ctl(self._state, _GET_LOOKAHEAD, ctypes.byref(look_ahead))
        self._rate, self._look_ahead = rate, look_ahead.value
        self._scale = 48_000 // rate  # granule positions count samples at 48 kHz
        self._unit = rate // 100  # samples
        self._packet = ctypes.create_string_buffer(_MOST_BYTES)
        self._pages = Pages(random.getrandbits(32))
        self._begun = False
        self._rest = b""  # not encoded yet
        self._samples = 0  # given
        self._encoded = 0  # samples

    def push(self, sound):
        """The pages of what can be encoded now."""
        self._samples += len(sound) // 2
        return self._take(sound)

    def end(self):
        """The last page. It tells how much of its last packet belongs to the sound."""
        missing = self._samples + self._look_ahead - self._encoded
        missing += -missing % self._unit
        return self._take(bytes(2 * missing - len(self._rest)), ends=True)

    def close(self):
        if self._state is not None:
            _library().opus_encoder_destroy(self._state)
            self._state = None

    def _take(self, sound, ends=False):
        sound = self._rest + sound
        at, units = 0, len(sound) // 2 // self._unit
        written, packets, lacing = [] if self._begun else [self._header()], [], 0
        self._begun = True
        while units:
            length = next(length for length in LENGTHS if length <= units)
            packet = self._encode(sound[at:at + 2 * length * self._unit], length * self._unit)
            if lacing + len(packet) // 255 + 1 > _MOST_LACING:
                written.append(self._pages.page(packets, self._encoded * self._scale))
                packets, lacing = [], 0
            packets.append(packet)
            lacing += len(packet) // 255 + 1
            self._encoded += length * self._unit
            at += 2 * length * self._unit
            units -= length
        self._rest = sound[at:]
        if packets:
            written.append(self._pages.page(packets, self._scale * (self._samples + self._look_ahead if ends else self._encoded),
                                            _ENDS if ends else 0))
        return b"".join(written)

    def _encode(self, sound, samples):
        size = _library().opus_encode(self._state, sound, samples, self._packet, _MOST_BYTES)
        if size < 0:
            raise RuntimeError(f"libopus: error {size}")
        return ctypes.string_at(self._packet, size)

    def _header(self):
        """The pages of identification and of comments: none but the library's name."""
        vendor = _library().opus_get_version_string()
        head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, self._look_ahead * self._scale, self._rate, 0, 0)
        tags = struct.pack(f"<8sI{len(vendor)}sI", b"OpusTags", len(vendor), vendor, 0)
        return self._pages.page([head], _NO_GRANULE, _BEGINS) + self._pages.page([tags], _NO_GRANULE)
