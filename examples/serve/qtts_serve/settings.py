# SPDX-License-Identifier: LGPL-2.1-or-later
"""Settings of a server: from keywords, from the command line, or from the environment (QTTS_SERVE_MODEL_PATH, …)."""
import argparse
import dataclasses
import math
import os

from . import access
from .formats import FORMATS
from .voice_files import read_folder


def truth(text):
    """A setting that is on or off."""
    words = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def option(default, help_text):
    return dataclasses.field(default=default, metadata={"help": help_text})


@dataclasses.dataclass
class Settings:
    # Where it listens: for the command line alone; another ASGI server decides itself.
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in, which need no log-in")
    port: int = option(8080, "port to listen on; 0 = a free one, which is printed")
    allow_origin: str = option("", "origins of web pages that may use the server beside its own page, separated by commas, "
                                   "such as https://speech.example; * lets all pages in")
    allow_host: str = option("", "names under which the server is asked for beside its addresses, localhost and the machine's "
                                 "name, separated by commas: speech.example, *.speech.example; * = any, for behind a "
                                 "gateway that checks them")
    # The voice.
    model_path: str = option("", "folder of a Qwen3-TTS-12Hz checkpoint (default: the bundled voice)")
    element: str = option("", 'more properties of qttssrc, such as "precision=int8 device=cpu"')
    model_name: str = option("", "name that requests give as model; several are separated by commas "
                                 "(default: the name of the folder)")
    voice_alias: str = option("", 'other names of voices, such as "alloy=ryan,nova=serena"')
    voices_folder: str = option("", "folder of voice files, which \"qtts-tool voice\" makes, for a base or a voice-design "
                                    "checkpoint: a request gives the name of a file, without .voice or .safetensors, as voice")
    lexicon: str = option("", "files of words and what is spoken instead, as the property lexicon of qttssrc takes them; words "
                              "of a request come before")
    openai_names: bool = option(True, "yes or no: whether OpenAI's names of models and voices (tts-1, alloy, ...) are taken for "
                                      "this model and voices of it")
    response_format: str = option("mp3", "format of the sound when a request over HTTP names none")
    trim_leading_silence: bool = option(True, "yes or no: whether the silence at the beginning of an utterance is cut when a "
                                              "request does not say")
    # Limits.
    slots: int = option(0, "utterances spoken at once; sizes the memory on a GPU; of several GPUs each has as many (0 = the "
                           "element's default)")
    sessions: int = option(256, "connections that speak or may speak: WebSockets, and requests being answered")
    max_wait: float = option(2.0, "seconds that an utterance waits for a slot before it is refused")
    max_characters: int = option(100_000, "characters of an utterance; the model speaks a long one part by part")
    ahead: int = option(4, "parts of a long text that are made at once for an answer without pace, in slots that nobody waits for, "
                           "1 to 64; 1 = one after the other")
    max_held_characters: int = option(4096, "characters of instructions, of a transcript, and of a text whose sound is kept until "
                                            "all of it is there: for parts of an answer (Range), and with stream_audio false")
    max_tokens: int = option(4096, "tokens that the model reads at once: of a part of the text, the instructions and the "
                                   "transcript")
    max_lexicon: int = option(1000, "words of the lexicon of a request")
    max_recording: int = option(10 << 20, "bytes of a recording to clone")
    max_ahead: float = option(30.0, "the largest pace that a request may ask for, in seconds; 0 as a pace stays allowed")
    connections: int = option(0, "connections at once, also those that have not asked yet (0 = twice the sessions, and 64)")
    address_connections: int = option(0, "those of one address; of IPv6, of its network of 64 bits (0 = the sessions, and 32)")
    header_timeout: float = option(10.0, "seconds in which the header of a request has to come")
    body_timeout: float = option(10.0, "seconds in which the body of a request has to come, beside the time for its bytes")
    body_rate: int = option(16384, "bytes a second of a body at least, after that")
    slow_reader: float = option(30.0, "seconds after which a client that does not read is disconnected")
    ping_interval: float = option(50.0, "seconds between pings of a WebSocket; they keep proxies from closing a silent one, of "
                                        "which many wait for 60 s; 0 = none")
    text_timeout: float = option(10.0, "seconds without text and without sound after which a growing utterance is ended")
    # The end.
    drain_delay: float = option(5.0, "seconds between not being ready and refusing, for balancers to notice; none if there is no "
                                     "session and nobody has asked /health/ready for 30 s")
    drain_timeout: float = option(60.0, "seconds that utterances have to come to their end")
    # Operation.
    replica: str = option("", "name of this process in the header x-qtts-replica (default: host name and process id)")
    log_level: str = option("info", "debug, info, warning or error; texts are in no level but debug")

    def __post_init__(self):
        self.replica = self.replica or f"{os.uname().nodename}-{os.getpid()}"
        if self.sessions < 1:
            raise ValueError("sessions: at least 1")
        for name in ("slots", "max_wait", "max_characters", "max_held_characters", "max_tokens", "max_lexicon", "max_recording", "max_ahead", "connections",
                     "address_connections", "ping_interval", "drain_delay", "drain_timeout"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not 0 or more")
        for name in ("header_timeout", "body_timeout", "body_rate", "slow_reader", "text_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if not 1 <= self.ahead <= 64:
            raise ValueError(f"ahead: {self.ahead} is not 1 to 64")
        for path in filter(None, self.lexicon.split(":")):
            if not os.path.isfile(path):
                raise ValueError(f"lexicon: {path!r} is no file")
        for origin in self.origins:
            if origin != "*" and not access.is_origin(origin):
                raise ValueError(f"allow_origin: {origin!r} is no origin, such as https://speech.example, in lower case and "
                                 "without a path")
        for host in self.hosts:
            if not access.is_pattern(host):
                raise ValueError(f"allow_host: {host!r} is no host name; it has no port, and * only in its place")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port: {self.port} is not 0 to 65535")
        if self.response_format not in FORMATS:
            raise ValueError(f"response_format: {self.response_format!r} is none of {', '.join(FORMATS)}")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ValueError(f"log_level: {self.log_level!r} is none of debug, info, warning, error")
        if self.voices_folder and not os.path.isdir(self.voices_folder):
            raise ValueError(f"voices_folder: {self.voices_folder!r} is no folder")
        self.voice_files = read_folder(self.voices_folder) if self.voices_folder else {}
        self.voices = dict(pair.split("=", 1) for pair in _listed(self.voice_alias, "voice_alias", "="))

    @property
    def origins(self):
        return _listed(self.allow_origin)

    @property
    def most_connections(self):
        return self.connections or 2 * self.sessions + 64

    @property
    def most_connections_of_address(self):
        return self.address_connections or self.sessions + 32

    @property
    def hosts(self):
        return _listed(self.allow_host.lower())

    @property
    def names(self):
        """Names of the model; the first is the one that it gives."""
        folder = os.path.basename(os.path.abspath(self.model_path)) if self.model_path else "qttssrc"
        return _listed(self.model_name) or [folder]

    @classmethod
    def from_environment(cls, environment=os.environ):
        values = {}
        for field in dataclasses.fields(cls):
            value = environment.get(f"QTTS_SERVE_{field.name.upper()}")
            if value is not None:
                try:
                    values[field.name] = _reader(field)(value)
                except ValueError:
                    raise ValueError(f"QTTS_SERVE_{field.name.upper()}: {value!r} is no {_reader(field).__name__}") from None
        return cls(**values)

    @classmethod
    def from_arguments(cls, arguments=None):
        parser = argparse.ArgumentParser("qtts-serve", description="Serves qttssrc over HTTP and WebSocket.",
                                         formatter_class=argparse.ArgumentDefaultsHelpFormatter,
                                         epilog="Each option is also read from QTTS_SERVE_OPTION in the environment.")
        try:
            defaults = cls.from_environment()
        except ValueError as error:
            parser.error(str(error))
        for field in dataclasses.fields(cls):
            default = field.default if field.name == "replica" else getattr(defaults, field.name)
            parser.add_argument("--" + field.name.replace("_", "-"), type=_reader(field), default=default,
                                metavar=_reader(field).__name__.upper(), help=field.metadata["help"])
        values = vars(parser.parse_args(arguments))
        try:
            return cls(**values)
        except ValueError as error:
            parser.error(str(error))


def _reader(field):
    """The function that reads an option's text."""
    return truth if field.type is bool else field.type


def _listed(text, name="", needs=""):
    values = [value.strip() for value in text.split(",") if value.strip()]
    for value in values:
        if needs not in value:
            raise ValueError(f"{name}: {value!r} lacks {needs!r}")
    return values
