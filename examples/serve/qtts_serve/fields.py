# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fields of a request or of session.config, checked; and what they mean to the element."""
import base64
import binascii
import contextlib
import dataclasses
import json
import math
import os
import sys
import tempfile

from starlette.datastructures import QueryParams

from . import formats
from .errors import ApiError, bad_field

FRAME_NANOSECONDS = 80_000_000
# Seconds by which the sound of a session may run ahead of real time.
SESSION_PACE = 2.0

# The largest whole number + 1 that every reader of JSON keeps: JavaScript's are floating-point.
EXACT = 2**53
# Frames of 80 ms: 22 hours, far above what a model speaks at once.
MOST_FRAMES = 1_000_000
# Numbers that are given to the element as they are: the least and the most, as the element has it. -1 is its "as the
# model says".
INTEGERS = {"seed": (0, EXACT - 1), "top_k": (0, 2**31 - 1)}
REALS = {"target_loudness": (-70, 0), "temperature": (0, 100), "top_p": (sys.float_info.min, 1), "repetition_penalty": (0.01, 100)}
# The least and the most "speed", as OpenAI has it and the element.
SPEEDS = (0.25, 4.0)
# Fields with a name in them; the others have text, in which a character that is none is replaced.
NAMES = ("model", "voice", "response_format", "language", "style", "stream_format", "normalize", "emoji", "markup")
# Fields with one of a few values, as the property of that name has them.
CHOICES = {"normalize": ("model", "none", "spoken"), "emoji": ("silent", "names"),
           "markup": ("auto", "none", "ssml", "markdown", "subtitle")}
LONGEST_NAME = 256
# Bytes of a request in JSON that may be something else than letters, digits, "+", "/" and "=", as most of a recording is.
# Without this bound a request as long as a recording may be could have millions of values, which take 0.5 s to read.
MOST_MARKS = 512 << 10
LETTERS = bytes(range(0x30, 0x3A)) + bytes(range(0x41, 0x5B)) + bytes(range(0x61, 0x7B)) + b"+/="
PART = 1 << 18  # characters of base64 that are decoded at once
# Fields of a form or an address; more cannot make sense.
MOST_FIELDS = 64
STRINGS = ("model", "instructions", "response_format", "language", "style", "ref_audio", "ref_text", *CHOICES)
SHARED = {"voice", "speed", "pace", "trim_leading_silence", "max_new_tokens", "x_vector_only_mode", "initial_codec_chunk_frames",
          "prepare_reference", "lexicon", "sample_rate", *INTEGERS, *REALS, *STRINGS}
OF_REQUEST = SHARED | {"input", "stream_format", "start_frame", "stream", "non_streaming_mode", "timestamp_granularities"}
# How often an utterance is made again that left words out, of an answer that is kept until it is whole.
RETRIES = 2
OF_SESSION = SHARED | {"type", "stream_audio", "progress", "split_granularity", "word_timestamps"}


@dataclasses.dataclass
class Wishes:
    """The wishes of a request or a session."""
    text: str = ""
    settings: dict = dataclasses.field(default_factory=dict)  # of the element
    response_format: str = "mp3"
    sample_rate: int = formats.RATE  # Hz
    events: bool = False  # server-sent events
    json: bool = False  # one object of JSON
    whole: bool = False  # one piece, when the utterance is over
    progress: bool = False  # tells of words
    pace: float = 0.0  # seconds ahead of real time; 0: as fast as it is made
    start_frame: int = 0
    recording: bytes = b""
    lexicon: str = ""  # two columns
    held: bool = True  # short enough for its sound to be kept until it is whole

    @property
    def texts(self):
        """By field, all that the model reads: its length is limited."""
        texts = {"input": self.text, "instructions": self.settings.get("instruct", ""),
                 "ref_text": self.settings.get("reference-text", "")}
        return {field: text for field, text in texts.items() if text}

    @contextlib.contextmanager
    def with_files(self):
        """A context: the settings, with the recording to clone and the lexicon in files as long as the context lasts."""
        with contextlib.ExitStack() as files:
            settings = dict(self.settings)
            if self.recording:
                settings["reference-audio"] = files.enter_context(_file(self.recording))
            if self.lexicon:
                own = files.enter_context(_file(self.lexicon.encode()))
                settings["lexicon"] = ":".join(filter(None, (own, settings.get("lexicon"))))
            yield settings


@contextlib.contextmanager
def _file(content):
    descriptor, path = tempfile.mkstemp(prefix="qtts-serve-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


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
    stream_format = fields.get("stream_format", "audio")
    if stream_format not in ("audio", "sse", "json"):
        raise bad_field("stream_format", f"is {shown(stream_format)}; it may be audio, sse or json.")
    wishes.events, wishes.json = stream_format == "sse", stream_format == "json"
    wishes.whole = wishes.json or not (_boolean(fields, "stream", True) or wishes.events)
    wishes.held = len(text) <= settings.max_held_characters
    _check_length("input", text, settings.max_held_characters if wishes.whole else settings.max_characters)
    if not wishes.text.strip():
        raise bad_field("input", "is blank: there is nothing to speak.")
    wishes.progress = _read_granularities(fields.get("timestamp_granularities", []))
    if wishes.progress and not (wishes.events or wishes.json):
        raise bad_field("timestamp_granularities", 'needs "stream_format" sse or json: plain sound has no place for words.')
    if wishes.whole:
        wishes.pace = 0.0
        wishes.settings["real-time"] = False
        if "seed" not in wishes.settings:
            wishes.settings["retry"] = RETRIES
    if "non_streaming_mode" in fields:
        wishes.settings["layout"] = "non-streaming" if _boolean(fields, "non_streaming_mode") else "streaming"
    _look_ahead(wishes, settings)
    wishes.start_frame = _integer(fields, "start_frame", 0, 0, MOST_FRAMES)
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
    _look_ahead(wishes, settings)
    wishes.progress = _boolean(fields, "progress")
    if fields.get("split_granularity", "none") != "none":
        raise bad_field("split_granularity", 'may only be none: text is spoken while it comes, as one utterance.')
    wishes.progress = _boolean(fields, "word_timestamps") or wishes.progress
    return wishes


def _look_ahead(wishes, settings):
    """Lets parts of a long text be made at once if nobody listens while they are made."""
    if not wishes.settings["real-time"]:
        wishes.settings["parallel-parts"] = settings.ahead


def _read_granularities(values):
    """Whether words are asked for, by OpenAI's name of the field."""
    values = [values] if isinstance(values, str) else values
    if not isinstance(values, list) or any(value != "word" for value in values):
        raise bad_field("timestamp_granularities", f'is {shown(values)}; it may be ["word"].')
    return bool(values)


def clean(text):
    """`text` as the element can take it."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def shown(value):
    """A value of a client in a message: as it was, but no longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:76] + " …"


def check_name(field, value):
    """ApiError unless `value` is a string that a name can be."""
    if not isinstance(value, str):
        raise bad_field(field, "has to be a string.")
    if len(value) > LONGEST_NAME:
        raise bad_field(field, f"has {len(value)} characters; at most {LONGEST_NAME} are a name.")
    if any(character < " " or character == "\x7f" or "\ud800" <= character <= "\udfff" for character in value):
        raise bad_field(field, f"is {shown(value)}, which has a control character or half of one.")


def _check_length(field, text, most):
    if len(text) > most:
        raise ApiError(413, f'"{field}" has {len(text)} characters; at most {most} are taken at once. '
                            + ("Split it." if field == "input" else "Shorten it."), field, "too_long")


def _read_pace(fields, settings, default):
    pace = _number(fields, "pace", default)
    if pace and not 0.2 <= pace <= settings.max_ahead:
        raise bad_field("pace", f"is {pace:g}; it may be 0, as fast as it comes, or 0.2 to {settings.max_ahead:g} s.")
    return pace


def _read_sample_rate(fields, form, name):
    rate = _integer(fields, "sample_rate", form.rate)
    if rate not in form.rates:
        allowed = ", ".join(str(number) for number in form.rates)
        raise bad_field("sample_rate", f"is {shown(rate)}; of {name} it may be {allowed}.")
    return rate


def _read_shared(fields, settings, catalogue, default_format):
    for name in STRINGS:
        if not isinstance(fields.get(name, ""), (str, bytes) if name == "ref_audio" else str):
            raise bad_field(name, "has to be a string.")
    for name in NAMES:
        if name in fields and not (name == "voice" and isinstance(fields[name], dict)):
            check_name(name, fields[name])
    for name in ("instructions", "ref_text"):
        _check_length(name, fields.get(name, ""), settings.max_held_characters)
    if "model" in fields:
        catalogue.check_model(fields["model"])
    wishes = Wishes(response_format=fields.get("response_format", default_format))
    if wishes.response_format not in formats.FORMATS:
        raise bad_field("response_format", f"is {shown(wishes.response_format)}; it may be {', '.join(formats.FORMATS)}.")
    if not formats.available(wishes.response_format):
        raise bad_field("response_format", f"is {wishes.response_format}, whose encoder is not installed on the server.")
    wishes.sample_rate = _read_sample_rate(fields, formats.FORMATS[wishes.response_format], wishes.response_format)
    element = wishes.settings
    if (speed := _number(fields, "speed", 1.0, *SPEEDS)) != 1.0:
        element["rate"] = float(speed)
    voice = fields.get("voice")
    if isinstance(voice, dict):
        voice = voice.get("id")
    if voice is not None:
        if not isinstance(voice, str):
            raise bad_field("voice", 'has to be a string or {"id": string}.')
        check_name("voice", voice)
    element.update(catalogue.voice(voice, fields.get("style")))
    element["trim-leading-silence"] = _boolean(fields, "trim_leading_silence", settings.trim_leading_silence)
    if "instructions" in fields:
        element["instruct"] = clean(fields["instructions"])
    if "language" in fields:
        element["language"] = fields["language"]
    for numbers, read in ((INTEGERS, _integer), (REALS, _number)):
        for name, (least, most) in numbers.items():
            if name in fields:
                by_model = name not in ("seed", "target_loudness") and fields[name] == -1
                element[name.replace("_", "-")] = read(fields, name) if by_model else read(fields, name, None, least, most)
    for name, values in CHOICES.items():
        if name in fields:
            if fields[name] not in values:
                raise bad_field(name, f"is {shown(fields[name])}; it may be {', '.join(values)}.")
            element[name] = fields[name]
    if settings.lexicon:
        element["lexicon"] = settings.lexicon
    wishes.lexicon = _read_lexicon(fields.get("lexicon", {}), settings)
    if "max_new_tokens" in fields:
        element["max-duration"] = _integer(fields, "max_new_tokens", None, 1, MOST_FRAMES) * FRAME_NANOSECONDS
    _read_recording(fields, settings, wishes)
    # Where the first piece of sound of vLLM-Omni ends; here it is one frame always.
    _integer(fields, "initial_codec_chunk_frames", 0, 0, MOST_FRAMES)
    return wishes


def _read_lexicon(words, settings):
    """Words and what is spoken instead, as lines of two columns."""
    if not isinstance(words, dict):
        raise bad_field("lexicon", 'has to be an object of words and what is spoken instead: {"nginx": "engine x"}.')
    if len(words) > settings.max_lexicon:
        raise ApiError(413, f'"lexicon" has {len(words)} words; at most {settings.max_lexicon} are taken. Words of every request '
                            "belong into a file of --lexicon.", "lexicon", "too_long")
    lines = []
    for word, spoken in words.items():
        if not isinstance(spoken, str):
            raise bad_field("lexicon", f"has for {shown(word)} what is no string.")
        for text in (word, spoken):
            check_name("lexicon", text)
        if not word.strip() or not spoken.strip():
            raise bad_field("lexicon", f"has a blank word, or nothing to speak for one: {shown(word)}.")
        if word.strip()[0] in "#<":
            raise bad_field("lexicon", f"has the word {shown(word)}, which may not begin with # or <.")
        lines.append(f"{word.strip()}\t{spoken.strip()}\n")
    return "".join(lines)


def _read_recording(fields, settings, wishes):
    timbre_only = _boolean(fields, "x_vector_only_mode")
    if _boolean(fields, "prepare_reference"):
        wishes.settings["prepare-reference"] = True
    if "ref_text" in fields and not timbre_only:
        wishes.settings["reference-text"] = clean(fields["ref_text"])
    recording = fields.get("ref_audio")
    if recording is None:
        for name in ("ref_text", "x_vector_only_mode", "prepare_reference"):
            if fields.get(name, False) is not False:
                raise bad_field(name, 'needs "ref_audio".')
        return
    if "voice-file" in wishes.settings:
        raise bad_field("ref_audio", 'is there beside "voice", which has its own recording; leave one out.')
    wishes.recording = recording if isinstance(recording, bytes) else _decode_recording(recording, settings)
    if len(wishes.recording) > settings.max_recording:
        raise _too_long_recording(len(wishes.recording), settings)
    if not wishes.recording:
        raise bad_field("ref_audio", "is empty.")


def _decode_recording(url, settings):
    # The head is looked for where it can be: the rest may have megabytes.
    comma = url.find(",", 0, LONGEST_NAME)
    head = url[:max(comma, 0)]
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise bad_field("ref_audio", "has to be a data URL (data:audio/wav;base64,…): addresses are not fetched.")
    size = (len(url) - comma - 1) * 3 // 4
    if size > settings.max_recording + 2:
        raise _too_long_recording(size, settings)
    parts = []
    try:
        # In parts, so that the thread that does this lets others run.
        for begin in range(comma + 1, len(url), PART):
            if parts and len(parts[-1]) < PART // 4 * 3:
                raise binascii.Error("padding in the midst")
            parts.append(base64.b64decode(url[begin:begin + PART], validate=True))
    except ValueError:  # binascii.Error, or a character beyond ASCII
        raise bad_field("ref_audio", "is not valid base64.") from None
    return b"".join(parts)


def _too_long_recording(size, settings):
    return ApiError(413, f'"ref_audio" has some {size} bytes; at most {settings.max_recording} are accepted. 10 to 20 s of '
                         "speech are enough.", "ref_audio", "too_long")


def read_strings(pairs):
    """Fields that came as strings, of a form or an address: numbers and booleans by their names."""
    result = {}
    for name, value in pairs:
        if name in result:
            raise ApiError(400, f"The field {shown(name)} is there more than once.", name, "invalid_value")
        result[name] = value
        if name not in STRINGS and name not in ("input", "voice", "stream_format"):
            try:
                result[name] = read_json(value)
            except ValueError:
                raise bad_field(name, f"is {shown(value)}, and has to be a number, true or false.") from None
    return result


def read_address(query):
    """Fields in the address, as bytes."""
    if query.count(b"&") >= MOST_FIELDS:
        raise ApiError(400, f"The address has more than {MOST_FIELDS} fields.", code="invalid_value")
    return read_strings(QueryParams(query).multi_items())


def read_json(text):
    """As json.loads(), without the numbers that JSON does not have, and bounded in time. ValueError for all that is
    none."""
    if len(text) > MOST_MARKS:
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        if len(data.translate(None, LETTERS)) > MOST_MARKS:
            raise ValueError("it has too many values for its fields")
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name):
    raise ValueError(f"{name} is no number of JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # json.loads() would make one for each call


def _given(fields, known):
    """The fields that have a value. ApiError for one that is unknown."""
    if not isinstance(fields, dict):
        raise ApiError(400, "The request has to be a JSON object.", code="invalid_value")
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ApiError(400, f"The field {shown(unknown[0])} is unknown. The fields are: {', '.join(sorted(known))}.",
                       unknown[0][:LONGEST_NAME], "unknown_field")
    return {name: value for name, value in fields.items() if value is not None}


def _number(fields, name, default=None, least=-math.inf, most=math.inf):
    value = fields.get(name, default)
    # A whole number may be too large for a floating-point one, and 1e999 is read as infinite.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise bad_field(name, f"is {shown(value)}, and has to be a number.")
    return float(_within(value, name, least, most))


def _integer(fields, name, default=None, least=-EXACT, most=EXACT):
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_field(name, f"is {shown(value)}, and has to be a whole number.")
    return _within(value, name, least, most)


def _within(value, name, least, most):
    if not least <= value <= most:
        raise bad_field(name, f"is {shown(value)}; it may be {_plain(least)} to {_plain(most)}.")
    return value


def _plain(number):
    """A bound in a message: a range that begins above 0 has the least number that there is."""
    return "above 0" if number == sys.float_info.min else f"{number:.16g}"


def _boolean(fields, name, default=False):
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise bad_field(name, f"is {shown(value)}, and has to be true or false.")
    return value
