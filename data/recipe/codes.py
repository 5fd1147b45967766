"""The codes of a frame: what the teacher itself knows of its 80 ms, written into the codebooks one thing each.

 0..2   the phones that sound in the frame, in order: phone * 4 + time - 1, in units of 25 ms (the teacher's); NONE: no second, no third
 3      height of the voice: 0 none, else 1 + level of the mean logarithm of its frequency
 4..5   its course within the frame: entry of a table of shapes, then of a table of what that one leaves
 6      level of the teacher's energy curve
 7..8   its course
 9      speaker * 5 + phase: 80 ms are 3.2 of the teacher's units, so the units of a frame repeat every five frames
 10..11 the two phones that follow the frame's

So nothing in a frame is a detail that only its sound would tell: a text and a rhythm determine most of it, and no encoder is needed.
Samples, times: an utterance begins at one of the teacher's units, that is phase 0.
"""
import numpy as np

from voices import SPEAKERS

GROUPS, ENTRIES = 12, 256
WHO = 9                                                 # the codebook that names the speaker
UNHEARD = (10, 11)                                      # for the decoder alone: a talker that reads what it announced copies its own slips
UNIT, STEP, FRAME = 600, 300, 1920                      # samples: of a duration, of a curve's value, of a frame
NONE = 255
LETTERS = "AIOQSTWYᵊabdefhijklmnoprstuvwzɑɒæɔðʤəɛɜɡɪŋθɹɾʃʧʊʌʒʔᵻ"
PAUSE, SPACE, OTHER = 0, 1, 5                           # 2, 3, 4: stress, second stress, length
PHONES = 6 + len(LETTERS)
POINTS = 8                                              # values of a curve in a frame: one a 10 ms
VOICED = 45.0                                           # Hz; the teacher's curve falls to a few where there is no voice
LOWEST, OCTAVES = np.log2(50.0), np.log2(500.0 / 50.0)
QUIET, LOUD = -11.0, 10.5                               # the energy curve's range
assert PHONES * 4 < NONE and len(SPEAKERS) * 5 <= ENTRIES


def phone_classes(vocabulary):
    """-> class of each of the teacher's letters' ids"""
    table = np.full(256, OTHER, np.int64)
    table[0] = PAUSE                                    # put by the teacher around a line
    for letter, i in vocabulary.items():
        if letter in LETTERS:
            table[i] = 6 + LETTERS.index(letter)
        elif letter in " ˈˌː":
            table[i] = 1 + " ˈˌː".index(letter)
        elif letter in ';:,.!?—…"()“”':
            table[i] = PAUSE
    return table


def cut(energy):
    """energy [steps of an utterance] -> first unit kept, units kept: a tenth of a second around what sounds; None: nothing does"""
    loud = np.flatnonzero(energy > -4)
    if not len(loud):
        return None
    first, last = loud[0] // 2 - 4, loud[-1] // 2 + 6
    return int(first), int(last - first)


def courses(curve, first, frames, outside):
    """-> [frames, POINTS]: a curve of the teacher at each 10 ms of the frames"""
    at = 2 * first + (np.arange(frames * POINTS) * 240 + 120) // STEP
    inside = (at >= 0) & (at < len(curve))
    return np.where(inside, curve[at.clip(0, len(curve) - 1)], outside).reshape(frames, POINTS)


def pitch(values):
    """Hz [frames, POINTS] -> mean of the logarithm [frames], 0 where no voice; its course [frames, 2 * POINTS]: difference from the mean, and where a voice is"""
    voiced = values > VOICED
    log = np.where(voiced, np.log2(np.maximum(values, VOICED)), 0)
    mean = log.sum(1) / np.maximum(voiced.sum(1), 1)
    return mean, np.concatenate([np.where(voiced, log - mean[:, None], 0) * 4, voiced * 0.5], 1)


def nearest(table, x):
    """table [entries, size], x [n, size] -> entry of each"""
    return (x @ table.T * 2 - np.square(table).sum(1)).argmax(1)


def frame_codes(classes, durations, f0, energy, speaker, tables):
    """classes, durations (units) of the line's letters, the two pauses around them included; f0 (Hz), energy: curves of two steps a unit
    -> codes uint8 [frames, GROUPS], first unit kept; None: nothing sounds"""
    kept = cut(energy)
    if kept is None:
        return None
    first, units = kept
    frames = -(-units * UNIT // FRAME)
    codes = np.full((frames, GROUPS), NONE, np.int64)
    # the letter of each unit of each frame; -9: the frame has three units
    starts = -(-np.arange(frames + 1) * FRAME // UNIT)
    unit = starts[:-1, None] + np.arange(4)
    letter = np.repeat(np.arange(len(durations)), durations)
    place = (first + unit)
    letter = np.where(unit < starts[1:, None], letter[place.clip(0, len(letter) - 1)], -9)
    beyond = (place >= int(durations.sum()))
    letter = np.where(beyond & (letter >= 0), len(durations) - 1, letter)
    begin = letter[:, 0]
    named = 0
    at = lambda k: classes[np.minimum(begin + k, len(classes) - 1)]
    for k in range(3):
        time = (letter == (begin + k)[:, None]).sum(1)
        codes[:, k] = np.where(time > 0, at(k) * 4 + time - 1, NONE)
        named = named + (time > 0)
    height, course = pitch(courses(f0, first, frames, 0.0))
    level = ((height - LOWEST) / OCTAVES * 254).round().clip(0, 254) + 1
    codes[:, 3] = np.where(height > 0, level, 0)
    codes[:, 4] = nearest(tables["pitch"], course)
    codes[:, 5] = nearest(tables["pitch_rest"], course - tables["pitch"][codes[:, 4]])
    e = courses(energy, first, frames, -10.0)
    mean = e.mean(1)
    codes[:, 6] = ((mean - QUIET) / (LOUD - QUIET) * 255).round().clip(0, 255)
    shape = e - mean[:, None]
    codes[:, 7] = nearest(tables["energy"], shape)
    codes[:, 8] = nearest(tables["energy_rest"], shape - tables["energy"][codes[:, 7]])
    codes[:, WHO] = speaker * 5 + np.arange(frames) % 5
    codes[:, 10], codes[:, 11] = at(named), at(named + 1)
    return codes.astype(np.uint8), first
