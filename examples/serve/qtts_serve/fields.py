# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fields of a request or of session.config, checked; and what they mean to the element."""
import base64
import binascii
import dataclasses
import json
import os
import tempfile

from . import encoders
from .errors import ApiError, bad_field

FRAME_NANOSECONDS = 80_000_000
# Seconds by which the sound of a session may run ahead of real time.
SESSION_PACE = 2.0

# Numbers that are given to the element as they are, which knows their ranges.
NUMBERS = {"seed": int, "temperature": float, "top_k": int, "top_p": float, "repetition_penalty": float}
STRINGS = ("model", "instructions", "response_format", "language", "ref_audio", "ref_text")
SHARED = {"voice", "speed", "pace", "trim_leading_silence", "max_new_tokens", "x_vector_only_mode", "initial_codec_chunk_frames", *NUMBERS, *STRINGS}
OF_REQUEST = SHARED | {"input", "stream_format", "start_frame", "stream", "non_streaming_mode"}
OF_SESSION = SHARED | {"type", "stream_audio", "progress", "split_granularity", "word_timestamps"}


@dataclasses.dataclass
class Wishes:
    """What a request or a session asks for."""
    text: str = ""
    settings: dict = dataclasses.field(default_factory=dict)  # of the element
    response_format: str = "mp3"
    events: bool = False  # server-sent events
    whole: bool = False  # one piece, when the utterance is over
    progress: bool = False
    pace: float = 0.0  # seconds ahead of real time; 0: as fast as it is made
    start_frame: int = 0
    recording: bytes = b""

    def with_recording(self):
        """A context: the settings, with the recording to clone in a file as long as the context lasts."""
        return _Recording(self)


class _Recording:
    def __init__(self, wishes):
        self._wishes = wishes
        self._path = None

    def __enter__(self):
        if not self._wishes.recording:
            return self._wishes.settings
        descriptor, self._path = tempfile.mkstemp(prefix="qtts-serve-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(self._wishes.recording)
        return {**self._wishes.settings, "reference-audio": self._path}

    def __exit__(self, *_):
        if self._path:
            os.unlink(self._path)


def read_request(fields, settings, catalogue):
    """The wishes of POST /v1/audio/speech."""
    fields = _given(fields, OF_REQUEST)
    wishes = _read_shared(fields, settings, catalogue, settings.response_format)
    wishes.pace = _read_pace(fields, settings, 0.0)
    # A whole answer is made in the time that those leave who listen to what is being made.
    wishes.settings["real-time"] = wishes.pace > 0
    text = fields.get("input")
    if not isinstance(text, str):
        raise bad_field("input", "is the text to speak, a string, and is required.")
    wishes.text = clean(text)
    if len(wishes.text) > settings.max_characters:
        raise ApiError(413, f'"input" has {len(text)} characters; at most {settings.max_characters} are spoken at once. '
                            "Split it.", "input", "too_long")
    if not wishes.text.strip():
        raise bad_field("input", "is blank: there is nothing to speak.")
    stream_format = fields.get("stream_format", "audio")
    if stream_format not in ("audio", "sse"):
        raise bad_field("stream_format", f"is {stream_format!r}; it may be audio or sse.")
    wishes.events = stream_format == "sse"
    # An answer is always streamed; vLLM-Omni's field only says that a client wants what it gets.
    _boolean(fields, "stream")
    if "non_streaming_mode" in fields:
        wishes.settings["layout"] = "non-streaming" if _boolean(fields, "non_streaming_mode") else "streaming"
    wishes.start_frame = _integer(fields, "start_frame", 0)
    if wishes.start_frame < 0:
        raise bad_field("start_frame", f"is {wishes.start_frame}; it may be 0 or more.")
    if wishes.start_frame and "seed" not in wishes.settings:
        raise bad_field("start_frame", "needs the seed of the utterance that it goes on with (header x-qtts-seed).")
    return wishes


def read_session(fields, settings, catalogue):
    """The wishes of session.config. As with vLLM-Omni, the sound comes whole, as WAV, unless asked for otherwise."""
    fields = _given(fields, OF_SESSION)
    wishes = _read_shared(fields, settings, catalogue, "wav")
    wishes.whole = not _boolean(fields, "stream_audio")
    wishes.pace = _read_pace(fields, settings, SESSION_PACE)
    if wishes.whole:
        wishes.pace = 0.0
    # Somebody listens, also to sound that comes as fast as it is made.
    wishes.settings["real-time"] = not wishes.whole
    wishes.progress = _boolean(fields, "progress")
    if fields.get("split_granularity", "none") != "none":
        raise bad_field("split_granularity", 'may only be none: text is spoken while it comes, as one utterance.')
    if _boolean(fields, "word_timestamps"):
        raise bad_field("word_timestamps", 'may only be false; "progress": true tells when words begin.')
    return wishes


def clean(text):
    """`text` as the element can take it."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _read_pace(fields, settings, default):
    pace = _number(fields, "pace", default)
    if pace and not 0.2 <= pace <= settings.max_ahead:
        raise bad_field("pace", f"is {pace:g}; it may be 0, as fast as it comes, or 0.2 to {settings.max_ahead:g} s.")
    return pace


def _read_shared(fields, settings, catalogue, default_format):
    for name in STRINGS:
        if not isinstance(fields.get(name, ""), str):
            raise bad_field(name, "has to be a string.")
    if "model" in fields:
        catalogue.check_model(fields["model"])
    wishes = Wishes(response_format=fields.get("response_format", default_format))
    if wishes.response_format not in encoders.FORMATS:
        raise bad_field("response_format", f"is {wishes.response_format!r}; it may be {', '.join(encoders.FORMATS)}.")
    if not encoders.available(wishes.response_format):
        raise bad_field("response_format", f"is {wishes.response_format}, whose encoder is not installed on the server.")
    if fields.get("speed", 1.0) != 1.0:
        raise bad_field("speed", "may only be 1.0.")

    element = wishes.settings
    voice = fields.get("voice")
    if isinstance(voice, dict):
        voice = voice.get("id")
    if voice is not None:
        if not isinstance(voice, str):
            raise bad_field("voice", 'has to be a string or {"id": string}.')
        speaker = catalogue.speaker(voice)
        if speaker is not None:
            element["speaker"] = speaker
    element["trim-leading-silence"] = _boolean(fields, "trim_leading_silence", settings.trim_leading_silence)
    if "instructions" in fields:
        element["instruct"] = clean(fields["instructions"])
    if "language" in fields:
        element["language"] = clean(fields["language"])
    for name, kind in NUMBERS.items():
        if name in fields:
            element[name.replace("_", "-")] = (_integer if kind is int else _number)(fields, name)
    if element.get("seed", 0) < 0:
        raise bad_field("seed", f"is {element['seed']}; it may be 0 to {2**63 - 1}.")
    if "max_new_tokens" in fields:
        tokens = _integer(fields, "max_new_tokens")
        if tokens < 1:
            raise bad_field("max_new_tokens", f"is {tokens}; it has to be at least 1, a frame of 80 ms.")
        element["max-duration"] = tokens * FRAME_NANOSECONDS
    _read_recording(fields, settings, wishes)
    # Where the first piece of sound of vLLM-Omni ends; here it is one frame always.
    _integer(fields, "initial_codec_chunk_frames", 0)
    return wishes


def _read_recording(fields, settings, wishes):
    timbre_only = _boolean(fields, "x_vector_only_mode")
    if "ref_text" in fields and not timbre_only:
        wishes.settings["reference-text"] = clean(fields["ref_text"])
    recording = fields.get("ref_audio")
    if recording is None:
        if "ref_text" in fields or timbre_only:
            raise bad_field("ref_text" if "ref_text" in fields else "x_vector_only_mode", 'needs "ref_audio".')
        return
    head, _, data = recording.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise bad_field("ref_audio", "has to be a data URL (data:audio/wav;base64,…): addresses are not fetched.")
    if len(data) * 3 // 4 > settings.max_recording:
        raise ApiError(413, f'"ref_audio" has some {len(data) * 3 // 4} bytes; at most {settings.max_recording} are '
                            "accepted. 10 to 20 s of speech are enough.", "ref_audio", "too_long")
    try:
        wishes.recording = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise bad_field("ref_audio", "is not valid base64.") from None
    if not wishes.recording:
        raise bad_field("ref_audio", "is empty.")


def read_strings(pairs):
    """Fields that came as strings, of a form or an address: numbers and booleans by their names."""
    result = {}
    for name, value in pairs:
        result[name] = value
        if name not in STRINGS and name not in ("input", "voice", "stream_format"):
            try:
                result[name] = read_json(value)
            except ValueError:
                raise bad_field(name, f"is {value!r}, and has to be a number, true or false.") from None
    return result


def read_json(text):
    """As json.loads(), without the numbers that JSON does not have. ValueError for all that is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name):
    raise ValueError(f"{name} is no number of JSON")


def _given(fields, known):
    """The fields that have a value. ApiError for one that is unknown."""
    if not isinstance(fields, dict):
        raise ApiError(400, "The request has to be a JSON object.", code="invalid_value")
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ApiError(400, f'The field "{unknown[0]}" is unknown. The fields are: {", ".join(sorted(known))}.', unknown[0],
                       "unknown_field")
    return {name: value for name, value in fields.items() if value is not None}


def _number(fields, name, default=None):
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise bad_field(name, "has to be a number.")
    return float(value)


def _integer(fields, name, default=None):
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not -2**63 <= value < 2**63:
        raise bad_field(name, "has to be a whole number.")
    return value


def _boolean(fields, name, default=False):
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise bad_field(name, "has to be true or false.")
    return value
