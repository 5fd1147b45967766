#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files that name another place, as an attacker would give them as a recording to clone.

    hostile_recordings.py FOLDER HOST:PORT FILE

writes into FOLDER/refused those that are no recording; into FOLDER/decoded recordings that name the place beside their
sound; into FOLDER/plain their sound alone, under the same names. All name http://HOST:PORT/ and FILE.
"""
import pathlib
import struct
import sys

ENCODED = pathlib.Path(__file__).resolve().parent / "golden/data/encoded"


def refused(host, file):
    """Name and bytes of each file that is no recording. `host`: HOST:PORT."""
    places = {"address": f"http://{host}/sound.wav", "file": f"file://{file}"}
    found = {}
    for kind, place in places.items():
        found.update({f"{name}-{kind}": text.encode() for name, text in _texts(place).items()})
        found.update({f"{name}-{kind}": content for name, content in _films(place).items()})
    port = host.rpartition(":")[2]
    found["sdp"] = (f"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\na=control:rtsp://{host}/\r\n"
                    f"m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n").encode()
    return found


def decoded(host, file):
    """Name of each recording: its bytes, and those of its sound alone."""
    place = f"http://{host}/sound.wav"
    wav, mp3, flac, opus = _wav(), *((ENCODED / name).read_bytes() for name in ("mpeg-1.mp3", "44100.flac", "48000.opus"))
    tag = _id3(place, file)
    return {
        "wav-chunks": (_wav(_chunks(place, file)), wav),
        "mp3-id3": (tag + mp3, mp3),
        "flac-id3": (tag + flac, flac),
        "flac-picture": (_flac_with_links(flac, place, file), flac),
        "ogg-skeleton": (_with_skeleton(opus, place), opus),
        "matroska-attachments": (_matroska(_links_of_matroska(place, file)), _matroska()),
    }


# --- lists

def _texts(place):
    folder = place.rpartition("/")[0] + "/"
    return {
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{place}\n#EXT-X-ENDLIST\n",
        "hls-master": f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=64000,CODECS=\"mp4a.40.2\"\n{place}\n",
        "hls-key": f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXT-X-KEY:METHOD=AES-128,URI=\"{place}\"\n"
                   f"#EXT-X-MAP:URI=\"{place}\"\n#EXTINF:5,\n{place}\n",
        "dash": "<?xml version=\"1.0\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\" "
                "mediaPresentationDuration=\"PT5S\" minBufferTime=\"PT1S\" profiles=\"urn:mpeg:dash:profile:isoff-on-demand:2011\">"
                f"<BaseURL>{folder}</BaseURL><Period><AdaptationSet mimeType=\"audio/mp4\"><Representation id=\"1\" "
                f"bandwidth=\"64000\" codecs=\"mp4a.40.2\"><BaseURL>{place}</BaseURL><SegmentBase/></Representation>"
                "</AdaptationSet></Period></MPD>\n",
        "dash-xlink": "<?xml version=\"1.0\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" "
                      "xmlns:xlink=\"http://www.w3.org/1999/xlink\" type=\"dynamic\" minBufferTime=\"PT1S\" "
                      f"profiles=\"urn:mpeg:dash:profile:isoff-live:2011\"><Location>{place}</Location>"
                      f"<Period xlink:href=\"{place}\" xlink:actuate=\"onLoad\"/></MPD>\n",
        "smooth": "<?xml version=\"1.0\"?>\n<SmoothStreamingMedia MajorVersion=\"2\" MinorVersion=\"0\" Duration=\"50000000\">"
                  f"<StreamIndex Type=\"audio\" Chunks=\"1\" Url=\"{place}\"><QualityLevel Index=\"0\" Bitrate=\"64000\"/>"
                  "<c d=\"50000000\"/></StreamIndex></SmoothStreamingMedia>\n",
        "smil": f"<smil><body><audio src=\"{place}\"/></body></smil>\n",
        "asx": f"<asx version=\"3.0\"><entry><ref href=\"{place}\"/></entry></asx>\n",
        "pls": f"[playlist]\nNumberOfEntries=1\nFile1={place}\nLength1=-1\nVersion=2\n",
        "m3u": f"{place}\n",
        "m3u-extended": f"#EXTM3U\n#EXTINF:5,Sound\n{place}\n",
        "xspf": "<?xml version=\"1.0\"?>\n<playlist version=\"1\" xmlns=\"http://xspf.org/ns/0/\"><trackList><track>"
                f"<location>{place}</location></track></trackList></playlist>\n",
        "cue": f"FILE \"{place}\" WAVE\n  TRACK 01 AUDIO\n    INDEX 01 00:00:00\n",
        "asf-redirect": f"[Reference]\nRef1={place}\nRef2={place}\n",
        "rtsp-redirect": f"RTSPtext\r\n{place}\r\n",
        "shortcut": f"[InternetShortcut]\r\nURL={place}\r\n",
        "desktop": f"[Desktop Entry]\nType=Link\nURL={place}\n",
        "uri-list": f"# text/uri-list\r\n{place}\r\n",
        "svg": f"<?xml version=\"1.0\"?>\n<!DOCTYPE svg [<!ENTITY x SYSTEM \"{place}\">]>\n<svg>&x;</svg>\n",
    }


# --- MOV, MXF, Matroska without sound

def _films(place):
    return {
        "mov-reference": _mov(_box(b"url ", bytes(4) + place.encode() + b"\0")),
        "mov-alias": _mov(_box(b"alis", bytes(4) + place.encode())),
        "mov-redirect": _box(b"ftyp", b"qt  " + bytes(4) + b"qt  ") + _redirect(place),
        "mov-redirect-alone": _redirect(place),
        "mxf": _mxf(place),
        "matroska-linked": _matroska(_links_of_matroska(place, place), sound=False),
    }


def _box(kind, content):
    return struct.pack(">I4s", 8 + len(content), kind) + content


def _redirect(place):
    return _box(b"moov", _box(b"rmra", _box(b"rmda", _box(b"rdrf", bytes(4) + b"url " + struct.pack(">I", len(place) + 1)
                                                          + place.encode() + b"\0"))))


def _mov(reference):
    """A track of one second of 8-bit samples that lie where `reference` says."""
    rate = 8000
    sample = _box(b"raw ", bytes(6) + struct.pack(">HIIHHIII", 1, 0, 0, 1, 8, 0, rate << 16, 0)[:28])
    table = _box(b"stsd", struct.pack(">II", 0, 1) + sample) \
        + _box(b"stts", struct.pack(">IIII", 0, 1, rate, 1)) + _box(b"stsc", struct.pack(">IIIII", 0, 1, 1, rate, 1)) \
        + _box(b"stsz", struct.pack(">III", 0, 1, rate)) + _box(b"stco", struct.pack(">III", 0, 1, 0))
    information = _box(b"smhd", bytes(8)) + _box(b"dinf", _box(b"dref", struct.pack(">II", 0, 1) + reference)) \
        + _box(b"stbl", table)
    media = _box(b"mdhd", struct.pack(">IIIIII", 0, 0, 0, rate, rate, 0)) \
        + _box(b"hdlr", bytes(4) + b"mhlrsoun" + bytes(13)) + _box(b"minf", information)
    track = _box(b"tkhd", struct.pack(">IIIIII", 7, 0, 0, 1, 0, rate) + bytes(60)) + _box(b"mdia", media)
    movie = _box(b"mvhd", struct.pack(">IIIII", 0, 0, 0, rate, rate) + bytes(80)) + _box(b"trak", track)
    return _box(b"ftyp", b"qt  " + bytes(4) + b"qt  ") + _box(b"moov", movie)


def _mxf(place):
    """A header partition with a network locator."""
    def item(key, value):
        return bytes.fromhex(key) + b"\x83" + len(value).to_bytes(3, "big") + value
    partition = struct.pack(">HHIQQQQQIQI", 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0) + bytes(24)
    text = place.encode("utf-16-be")
    locator = struct.pack(">HH", 0x4001, len(text)) + text
    return item("060e2b34020501010d01020101020400", partition) + item("060e2b34025301010d01010101013200", locator)


# --- recordings that name other places

def _wav(chunks=b""):
    samples = struct.pack("<8000h", *(8000 if i // 20 % 2 else -8000 for i in range(8000)))
    content = b"WAVE" + chunks + _chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)) + _chunk(b"data", samples)
    return b"RIFF" + struct.pack("<I", len(content)) + content


def _chunk(name, content):
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def _chunks(place, file):
    link = f"<link><file><path>{file}</path><url>{place}</url></file></link>".encode()
    return (_chunk(b"odd ", b"\1\2\3") + _chunk(b"link", link) + _chunk(b"axml", link) + _chunk(b"id3 ", _id3(place, file))
            + _chunk(b"LIST", b"INFO" + _chunk(b"IURL", place.encode() + b"\0"))
            + _chunk(b"plst", struct.pack("<II", 1, 0xFFFFFFFF)) + _chunk(b"cue ", struct.pack("<I", 0xFFFFFFFF)))


def _id3(place, file):
    """A tag whose picture and whose sound are links."""
    def frame(name, content):
        return name + struct.pack(">IH", len(content), 0) + content
    frames = frame(b"APIC", b"\0-->\0\3\0" + place.encode()) + frame(b"WOAF", place.encode()) \
        + frame(b"LINK", b"APIC" + f"file://{file}".encode() + b"\0") + frame(b"WXXX", b"\0\0" + place.encode())
    size = bytes(len(frames) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\3\0\0" + size + frames


def _flac_with_links(flac, place, file):
    def block(kind, content):
        return struct.pack(">I", kind << 24 | len(content)) + content

    def picture(link):
        return block(6, struct.pack(">II", 3, 3) + b"-->" + bytes(20) + struct.pack(">I", len(link)) + link.encode())
    cue = block(5, bytes(128 + 8 + 1 + 258) + b"\1" + bytes(8) + b"\xaa" + bytes(26))
    first = 4 + 4 + 34  # signature, header and content of STREAMINFO
    return flac[:first] + picture(place) + picture(f"file://{file}") + cue + flac[first:]


def ogg_checksum(page):
    """RFC 3533: polynomial 0x04c11db7, from 0, bit by bit."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x104C11DB7 if value & 0x80000000 else 0)) & 0xFFFFFFFF
    return value


def _page(flags, serial, number, packet):
    head = b"OggS\0" + bytes([flags]) + bytes(8) + struct.pack("<III", serial, number, 0)
    lengths = b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255])
    page = head + bytes([len(lengths)]) + lengths + packet
    return page[:22] + struct.pack("<I", ogg_checksum(page)) + page[26:]


def _with_skeleton(ogg, place):
    """The stream with an Ogg Skeleton 4.0 whose message headers name `place`."""
    first = 27 + ogg[26] + sum(ogg[27:27 + ogg[26]])
    serial, skeleton = struct.unpack("<I", ogg[14:18])[0], 0x5EED
    head = b"fishead\0" + struct.pack("<HHQQQQ", 4, 0, 0, 1000, 0, 1000) + bytes(20) + bytes(16)
    messages = f"Content-Type: audio/opus\r\nLocation: {place}\r\nContent-Location: {place}\r\n".encode()
    bone = b"fisbone\0" + struct.pack("<IIIQQQIB", 44, serial, 2, 48000, 1, 0, 0, 0) + bytes(3) + messages
    return (_page(2, skeleton, 0, head) + ogg[:first] + _page(0, skeleton, 1, bone) + _page(4, skeleton, 2, b"")
            + ogg[first:])


def _ebml(identity, content):
    return bytes.fromhex(identity) + b"\x10" + len(content).to_bytes(3, "big") + content


def _links_of_matroska(place, file):
    attachment = _ebml("61a7", _ebml("466e", place.encode()) + _ebml("4660", b"text/uri-list")
                       + _ebml("465c", f"{place}\r\n".encode()) + _ebml("46ae", b"\1"))
    info = _ebml("3eb923", bytes(16)) + _ebml("3e83bb", str(file).encode()) + _ebml("3c83ab", str(file).encode())
    return info, _ebml("1941a469", attachment)


def _matroska(links=(b"", b""), sound=True):
    """One second of 16-bit samples."""
    info, attachments = links
    head = _ebml("1a45dfa3", _ebml("4282", b"matroska") + _ebml("4287", b"\4") + _ebml("4285", b"\2"))
    segment = _ebml("1549a966", _ebml("2ad7b1", (1000000).to_bytes(3, "big")) + info) + attachments
    if sound:
        audio = _ebml("e1", _ebml("b5", struct.pack(">f", 8000)) + _ebml("9f", b"\1") + _ebml("6264", b"\x10"))
        segment += _ebml("1654ae6b", _ebml("ae", _ebml("d7", b"\1") + _ebml("73c5", b"\1") + _ebml("83", b"\2")
                                           + _ebml("86", b"A_PCM/INT/LIT") + audio))
        segment += _ebml("1f43b675", _ebml("e7", b"\0") + _ebml("a3", b"\x81\0\0\x80" + _wav()[-16000:]))
    return head + _ebml("18538067", segment)


def main():
    folder, host, file = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    for name in ("refused", "decoded", "plain"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, content in refused(host, file).items():
        (folder / "refused" / name).write_bytes(content)
    for name, (content, plain) in decoded(host, file).items():
        (folder / "decoded" / name).write_bytes(content)
        (folder / "plain" / name).write_bytes(plain)


if __name__ == "__main__":
    main()
