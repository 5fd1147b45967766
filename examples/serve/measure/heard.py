# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sound of an utterance as its listener hears it, from its bytes and the times at which they came. No clock is read
here."""
import ctypes
import operator

# Sound is audible if the RMS of 10 ms of it is at least -45 dB of full scale.
WINDOW = 240  # samples at 24 kHz
QUIET = 32768 * 10 ** (-45 / 20)
QUIET_SQUARES = WINDOW * QUIET ** 2
# Seconds of an utterance in which audible sound is looked for: it costs more than all else that a listener does.
LOOKED_AT = 2.0
# Seconds that the buffer of a sound card bridges. A shorter gap says how near a listener was to one.
LONG_GAP = 0.01


class Player:
    """A player that begins with the first sound that comes, stops where it has none, and goes on with the next."""

    def __init__(self):
        self.first = None  # when the first sound came
        self.begin = None  # the same, moved by the gaps: a position of the sound is played so much later
        self.have = 0.0  # seconds of sound that have come
        self.gaps, self.long_gaps = 0, 0  # number; those of LONG_GAP at least
        self.longest, self.silent = 0.0, 0.0  # seconds of the longest gap and of all

    def arrive(self, now, have):
        """Takes note that `have` seconds of sound in all are there now."""
        if self.begin is None:
            self.first = self.begin = now
        else:
            gap = now - self.plays(self.have)
            if gap > 0:
                self.gaps += 1
                self.long_gaps += gap >= LONG_GAP
                self.longest = max(self.longest, gap)
                self.silent += gap
                self.begin += gap
        self.have = have

    def plays(self, position):
        """Returns the time at which a position of the sound, in seconds, is played."""
        return self.begin + position


class Ear:
    """Looks for the first audible window in samples: S16LE, 24 kHz, mono."""

    def __init__(self):
        self.audible = None  # seconds into the sound
        self.deaf = False  # the samples are not known
        self._windows = 0  # not audible
        self._rest = b""

    @property
    def listens(self):
        return self.audible is None and not self.deaf and self._windows * WINDOW < LOOKED_AT * 24000

    def take(self, data):
        if not self.listens:
            return
        data = self._rest + data
        whole = len(data) // (2 * WINDOW)
        samples = memoryview(data)[:whole * 2 * WINDOW].cast("h")
        for number in range(whole):
            window = samples[number * WINDOW:(number + 1) * WINDOW].tolist()
            # The peak of a quiet window is found in a tenth of the time of its RMS.
            if max(max(window), -min(window)) >= QUIET and sum(map(operator.mul, window, window)) >= QUIET_SQUARES:
                self.audible = self._windows * WINDOW / 24000
                return
            self._windows += 1
            if not self.listens:
                return
        self._rest = data[whole * 2 * WINDOW:]


class Pcm:
    """Samples, behind a header of so many bytes."""

    def __init__(self, header=0):
        self.ear = Ear()
        self.seconds = 0.0  # of sound so far
        self._header = header
        self._bytes = 0

    def take(self, data):
        if self._header:
            skipped = min(self._header, len(data))
            self._header -= skipped
            data = data[skipped:]
        self._bytes += len(data)
        self.seconds = self._bytes / 48000
        self.ear.take(data)


class Opus:
    """Ogg Opus. The pages' granule positions tell how much sound has come; packets are decoded for the ear alone."""

    def __init__(self):
        self.ear = Ear()
        self.seconds = 0.0
        self._rest = b""
        self._skip = None  # samples at 48 kHz that a player drops at the beginning; None until the header has come
        self._tags = False  # the header's second packet has come
        self._decoder = None

    def take(self, data):
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= 27:
            if data[at:at + 4] != b"OggS":
                raise ValueError("the sound is no Ogg stream")
            body = at + 27 + data[at + 26]
            lacing = data[at + 27:body]
            end = body + sum(lacing)
            if len(data) < end or body > len(data):
                break
            self._page(int.from_bytes(data[at + 6:at + 14], "little", signed=True), lacing, data, body)
            at = end
        self._rest = data[at:]

    def _page(self, granule, lacing, data, at):
        if self._skip is None:
            self._skip = int.from_bytes(data[at + 10:at + 12], "little")
            return
        if not self._tags:
            self._tags = lacing[-1] < 255
            return
        if granule > self._skip:
            self.seconds = (granule - self._skip) / 48000
        if self.ear.listens:
            self._decode(lacing, data, at)

    def _decode(self, lacing, data, at):
        """Gives the packets of a page to the ear. No packet of 20 ms of speech goes over two pages."""
        if self._decoder is None:
            self._decoder = Decoder.make(self._skip // 2)
            if self._decoder is None:
                self.ear.deaf = True
                return
        size = 0
        for part in lacing:
            size += part
            if part < 255:
                self.ear.take(self._decoder.decode(data[at:at + size]))
                at, size = at + size, 0


class Decoder:
    """libopus, at 24 kHz."""

    MOST = 2880  # samples of a packet: 120 ms

    _library = None

    @classmethod
    def make(cls, skip):
        """Returns a decoder whose first `skip` samples are dropped; None without libopus."""
        if cls._library is None:
            try:
                cls._library = ctypes.CDLL("libopus.so.0")
                cls._library.opus_decoder_create.restype = ctypes.c_void_p
            except OSError:
                cls._library = False
        return cls(skip) if cls._library else None

    def __init__(self, skip):
        error = ctypes.c_int()
        self._state = ctypes.c_void_p(self._library.opus_decoder_create(24000, 1, ctypes.byref(error)))
        if error.value:
            raise RuntimeError(f"libopus: error {error.value}")
        self._skip = skip

    def __del__(self):
        self._library.opus_decoder_destroy(self._state)

    def decode(self, packet):
        """Returns the samples of a packet as bytes."""
        samples = (ctypes.c_int16 * self.MOST)()
        count = self._library.opus_decode(self._state, bytes(packet), len(packet), samples, self.MOST, 0)
        if count < 0:
            raise ValueError(f"libopus: error {count} in a packet of {len(packet)} bytes")
        dropped = min(self._skip, count)
        self._skip -= dropped
        return bytes(samples)[2 * dropped:2 * count]


def meter(name):
    """Returns the reader of a format."""
    return Opus() if name == "opus" else Pcm(44 if name == "wav" else 0)


class Heard:
    """One utterance. Times are seconds of the clock that the caller reads."""

    def __init__(self, name, sent):
        self.sent = self.last = sent  # `last`: when something came
        self.player = Player()
        self.first_byte = self.audible = self.heard = None
        self.pieces, self.last_piece = 0, None  # of growing text, before the first byte: their number, when the last left
        self._meter = meter(name)

    @property
    def seconds(self):
        """Seconds of sound that have come."""
        return self._meter.seconds

    @property
    def deaf(self):
        """Whether it is unknown what is audible."""
        return self._meter.ear.deaf

    def give_piece(self, now):
        """A piece of growing text is sent."""
        if self.first_byte is None:
            self.pieces += 1
            self.last_piece = now

    def take(self, now, data):
        if self.first_byte is None:
            self.first_byte = now
        self.last = now
        before = self._meter.seconds
        self._meter.take(data)
        if self._meter.seconds > before:
            self.player.arrive(now, self._meter.seconds)
        if self.audible is None and self._meter.ear.audible is not None:
            self.audible = now
            self.heard = self.player.plays(self._meter.ear.audible)
