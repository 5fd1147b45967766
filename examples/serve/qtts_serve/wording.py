# SPDX-License-Identifier: LGPL-2.1-or-later
"""The element's messages in the words of clients, who know fields and not properties."""
import re

# Property to field.
FIELDS = {"speaker": "voice", "instruct": "instructions", "reference-audio": "ref_audio", "reference-text": "ref_text",
          "prepare-reference": "prepare_reference",
          "layout": "non_streaming_mode", "max-duration": "max_new_tokens", "top-k": "top_k", "top-p": "top_p",
          "repetition-penalty": "repetition_penalty", "trim-leading-silence": "trim_leading_silence"}
# Properties that have the name of their field.
SAME = ("temperature", "seed", "language", "normalize", "emoji", "markup", "lexicon")
# Words that no client should read: a property that is no field, as a value is given to it or as a name with a hyphen;
# types and words of the programming interface.
FOREIGN = re.compile(r"[a-z]+(?:-[a-z]+)*=\w|\"[a-z]+(?:-[a-z]+)+\"|\b(?:G[A-Z][a-z]\w*|g[a-z]*int\w*|gdouble|gboolean|gchar\w*"
                     r"|qttssrc|propert(?:y|ies)|element|GStreamer|plugins?)\b")
SENTENCE = re.compile(r"(?<=[.;]) +")


# Field to what a message about it begins with, or has in it.
SUBJECTS = (("language", r"^unknown language"), ("ref_audio", r"reference recording|^ref_audio|cloned voice"),
            ("ref_text", r"reference text"))


def for_clients(message, properties):
    """A message with fields for `properties`, the names of all that there are, and without advice that only a programmer
    could follow; and the field that it is about, or None."""
    others = [name for name in properties if "-" in name and name not in FIELDS]
    for name, field in sorted(FIELDS.items(), key=lambda pair: -len(pair[0])):
        message = re.sub(rf'"{name}"', f'"{field}"', message)
        if "-" in name:
            message = re.sub(rf"(?<![\w-]){name}(?![\w-])", field, message)
    message = re.sub(r"^The setting ", "", message)
    field = _field_of(message)
    foreign = re.compile("|".join([FOREIGN.pattern, *(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in others)]))
    first, *more = SENTENCE.split(message)
    if foreign.search(first):  # the problem may stand before the remedy
        first = first.partition(": ")[0]
    text = " ".join(sentence for sentence in (first, *more) if not foreign.search(sentence)).strip()
    if not text:
        return (f'"{field}" has a value that the model does not take.' if field else "The model refused the request."), field
    return (text[:-1] + "." if text[-1] in ",;:" else text), field


def _field_of(message):
    for field, pattern in SUBJECTS:
        if re.search(pattern, message):
            return field
    named = re.match(r'"([a-z_]+)" is ', message)
    return named.group(1) if named and named.group(1) in {*FIELDS.values(), *SAME} else None
