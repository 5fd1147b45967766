"""Sentence templates: everyday and technical sentences, numbers in every form, names, questions, dialogue, system messages, spelled letters.

build() gives named lists of functions, each of which makes a line. Lines are raw text ("$12.50"); reading.py spells them out.
"""
import json
import math
import re


class Places:
    """names from Debian's iso-codes and tzdata"""

    def __init__(self):
        read = lambda f, k: json.load(open(f"/usr/share/iso-codes/json/{f}.json", encoding="utf-8"))[k]
        short = lambda n: re.split(r"[,;(]", n)[0].strip()
        ok = lambda n: re.fullmatch(r"[^\W\d_][^\W\d_'’. -]{2,24}", n) is not None
        self.countries = sorted({short(c.get("common_name", c["name"])) for c in read("iso_3166-1", "3166-1")})
        self.languages = sorted({n for c in read("iso_639-2", "639-2") if "alpha_2" in c for n in [short(c["name"])] if ok(n)})
        self.currencies = sorted({c["name"] for c in read("iso_4217", "4217") if re.fullmatch(r"[A-Za-z ]{4,24}", c["name"])})
        self.regions = sorted({n for c in read("iso_3166-2", "3166-2") if c["code"][:2] in ("US", "GB", "CA", "AU", "NZ", "IE", "DE", "FR", "ES", "IT", "JP", "IN", "MX", "BR", "ZA", "NG")
                               for n in [short(c["name"])] if ok(n)})
        zones = [line.split("\t")[2].strip() for line in open("/usr/share/zoneinfo/zone.tab") if line[0] != "#"]
        self.cities = sorted({z.split("/")[-1].replace("_", " ") for z in zones})


def build(rng, lower, common, names, people_first, people_last, cities):
    R = rng.choice
    P = Places()
    cities = sorted(set(cities) | set(P.cities))
    units = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    months = "January February March April May June July August September October November December".split()
    days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
    people = "John Mary Peter Anna David Sarah Michael Emma James Laura Robert Alice Thomas Julia Daniel Kate Paul Susan Mark Helen Tom Lucy Jack Grace Henry Maria Alex Sam Ben Eva".split()
    places = "London Paris Berlin Boston Chicago Tokyo Rome Madrid Toronto Sydney Dublin Vienna Oslo Seattle Denver Texas California Canada France Germany Spain Italy China Japan India Australia England Scotland Mexico Brazil".split()
    tech = ("audio video buffer pipeline element source sink sample channel stream server client network computer keyboard screen "
            "processor memory kernel driver module plugin signal message event thread clock queue packet frame codec speaker microphone "
            "software hardware program function variable string number database website browser password account file folder window button "
            "menu printer camera battery device cable router battery language model voice speech text token sentence engine").split()
    adj = "new old small large quick slow bright dark warm cold happy quiet loud simple strange easy hard long short clean empty full red blue green yellow white black open closed ready broken free local public private final first last next good bad great nice kind strong weak deep early late".split()
    noun = "house car book dog cat tree river mountain city street door table chair garden kitchen letter story song friend teacher doctor child family morning evening night summer winter water coffee bread apple train bus bridge window school office market picture phone game question answer idea problem plan meeting report ticket hotel room bed shirt shoe hat coat bag box key ring ball boat ship plane road field forest beach island lake storm cloud rain snow wind sun moon star".split()
    verb = "open close read write send receive start stop play pause record check test build break move change find lose make take give hold turn push pull carry watch hear see call ask answer help learn teach remember forget clean cook buy sell bring leave follow show".split()
    adv = "now today tomorrow slowly quickly again soon later quietly carefully often always never sometimes here there already together alone perhaps immediately".split()


    def num():
        k = rng.random()
        if k < .25: return str(rng.randint(0, 20))
        if k < .55: return str(rng.randint(10, 99))
        if k < .75: return str(rng.randint(100, 999))
        if k < .9: return str(rng.randint(1000, 9999))
        if k < .95: return f"{rng.randint(1, 99)}.{rng.randint(1, 9)}"
        return f"{rng.randint(1, 99)},{rng.randint(100, 999)}"


    def wnum():
        k = rng.random()
        if k < .4: return R(units)
        t = R(tens) + ("" if rng.random() < .3 else " " + R(units[1:10]))
        if k < .7: return t
        if k < .9: return R(units[1:10]) + " hundred" + ("" if rng.random() < .3 else " and " + t)
        return R(units[1:10]) + " thousand " + R(units[1:10]) + " hundred"


    T = [
        lambda: f"The {R(adj)} {R(noun)} is {R(['near', 'behind', 'under', 'next to', 'in front of', 'far from', 'above', 'inside'])} the {R(noun)}.",
        lambda: f"Please {R(verb)} the {R(noun)} {R(adv)}.",
        lambda: f"{R(people)} and {R(people)} went to {R(places)} on {R(days)}.",
        lambda: f"Can you {R(verb)} the {R(tech)} {R(adv)}?",
        lambda: f"Do you {R(['like', 'want', 'have', 'need', 'know', 'see', 'remember'])} the {R(adj)} {R(noun)}?",
        lambda: f"There are {wnum()} {R(noun)}s and {wnum()} {R(noun)}s in the {R(noun)}.",
        lambda: f"The answer is {num()}.",
        lambda: f"It costs ${rng.randint(1, 200)}.{rng.randint(10, 99)}." if rng.random() < .5 else f"It costs {rng.randint(2, 900)} dollars.",
        lambda: f"The {R(tech)} runs at {num()} percent.",
        lambda: f"The meeting starts at {rng.randint(1, 12)}:{rng.randint(10, 59)}{R(['', ' in the morning', ' in the afternoon', ' tonight'])}.",
        lambda: f"Today is {R(days)}, {R(months)} {rng.randint(1, 31)}.",
        lambda: f"In {rng.randint(1900, 2039)}, {R(people)} moved to {R(places)}.",
        lambda: f"The train to {R(places)} leaves from platform {rng.randint(1, 24)} at {rng.randint(1, 12)} o'clock.",
        lambda: f"Hello, {R(people)}. {R(['How are you today?', 'Nice to meet you.', 'Good morning.', 'Welcome back.', 'What can I do for you?', 'Thank you for calling.'])}",
        lambda: f"{R(['Warning', 'Error', 'Notice', 'Attention'])}: the {R(tech)} {R(['is not responding', 'has failed', 'is full', 'was not found', 'needs your attention', 'has been updated', 'is ready', 'is running'])}.",
        lambda: f"The {R(tech)} {R(tech)} {R(['connects', 'sends', 'reads', 'writes', 'opens', 'needs', 'uses', 'produces'])} {num()} {R(tech)}s per second.",
        lambda: f"Step {rng.randint(1, 30)}: {R(verb)} the {R(adj)} {R(tech)}.",
        lambda: f"{R(['Why', 'When', 'Where', 'How'])} did {R(people)} {R(verb)} the {R(noun)}?",
        lambda: f"{R(['What', 'Which'])} {R(noun)} do you {R(verb)}?",
        lambda: f"I think the {R(common)} {R(noun)} is {R(adj)}, but the {R(common)} one is {R(adj)}.",
        lambda: f"{R(lower).capitalize()}, {R(lower)}, and {R(lower)}.",
        lambda: f"The word is {R(lower)}.",
        lambda: f"She said {R(lower)} and then {R(lower)}.",
        lambda: f"{R(names)} met {R(names)} in {R(names)}.",
        lambda: f"{num()} plus {num()} equals {num()}.",
        lambda: f"{R(units).capitalize()}, {R(units)}, {R(units)}, {R(units)}, {R(tens)}.",
        lambda: " ".join(R(common) for _ in range(rng.randint(4, 9))).capitalize() + ".",
        lambda: f"{R(adj).capitalize()} {R(noun)}s {R(verb)} {R(adj)} {R(noun)}s {R(adv)}.",
        lambda: f"I {R(['am', 'was', 'will be', 'have been', 'would be', 'could be'])} {R(['going to', 'trying to', 'able to', 'ready to'])} {R(verb)} {R(['it', 'them', 'this', 'that', 'you', 'him', 'her', 'us'])} {R(adv)}.",
        lambda: f"{R(['He', 'She', 'It', 'We', 'They', 'You'])} {R(['can', 'should', 'must', 'might', 'would', 'could'])}{R(['', ' not'])} {R(verb)} the {R(noun)}.",
        lambda: f"{R(['I', 'We', 'They', 'You'])} {R(['don', 'didn', 'won', 'can', 'couldn', 'wouldn', 'shouldn'])}'t {R(verb)} {R(['it', 'that', 'the ' + R(noun), 'any ' + R(noun) + 's'])}.",
        lambda: f"{R(['That', 'It', 'There', 'What', 'Here', 'He', 'She'])}'s {R(['a', 'the', 'my', 'your', 'our'])} {R(adj)} {R(noun)}.",
        lambda: f"The number is {' '.join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 7)))}.",
        lambda: f"{R(['Left', 'Right', 'Up', 'Down', 'Yes', 'No', 'Okay', 'Thanks', 'Please', 'Sorry', 'Hello', 'Goodbye', 'Stop', 'Go', 'Wait', 'Ready', 'Done', 'Good', 'Great', 'Sure'])}{R(['.', '!', '?'])}",
    ]
    # second round: what people feed to a speech element in practice, in flite's own reading
    abbr = ("GStreamer WebRTC RTP RTSP RTCP GPU CPU CUDA API HTTP HTTPS URL JSON XML HTML CSS SQL USB HDMI PDF Linux Ubuntu Debian Python Rust Java JavaScript "
            "TypeScript Kubernetes Docker Git GitHub GitLab TCP UDP IP DNS VPN SSH FTP TLS SSL Bluetooth Nvidia Intel AMD ARM Android Windows Mac iPhone "
            "Google YouTube Amazon Microsoft Apple Wikipedia OpenAI Qwen LLM AI TTS ASR NLP MP3 MP4 AAC Opus Vorbis FLAC PCM ALSA PulseAudio PipeWire JACK Wayland "
            "RAM ROM SSD NVMe PCI LED LCD FPS DSP FFT SDK IDE CLI GUI PNG JPEG GIF SVG CSV YAML UTF ASCII NASA FBI USA UK EU UN BBC CNN ID PIN ATM TV DVD CD OK FAQ "
            "PhD CEO PC QR GPS SMS VoIP SIP STUN TURN ICE SRTP MPEG HLS DASH VP8 VP9 AV1 H264 H265 ONNX PyTorch TensorFlow NumPy").split()
    tech2 = ("pipeline pipelines element elements caps capability pad pads bin bins bus buffer buffers decoder encoder demuxer muxer resampler mixer tee appsink appsrc "
             "playbin decodebin framework library libraries runtime latency jitter bitrate bandwidth throughput framerate resolution timestamp timestamps metadata codec codecs "
             "bitstream waveform spectrogram spectrum tensor tensors inference quantization embedding vocabulary transformer attention neural network weights checkpoint training "
             "compiler debugger repository commit branch merge request pull issue release version changelog dependency package installer configuration parameter argument "
             "exception traceback segmentation fault overflow underflow deadlock mutex semaphore scheduler allocator cache register pointer array integer boolean callback "
             "asynchronous synchronous multithreaded hypervisor container cluster node daemon socket gateway firewall proxy encryption authentication authorization certificate "
             "telephone hologram synthesizer synthesis recognizer recognition microphone loudspeaker headphones amplifier equalizer filter gain volume pitch tempo channel stereo mono "
             "graph graphs media handling component components multimedia streaming playback recording transcoding rendering").split()
    unit_w = "meters kilometers centimeters millimeters miles feet inches grams kilograms pounds tons liters gallons seconds minutes hours days weeks months years degrees percent bytes kilobytes megabytes gigabytes terabytes hertz kilohertz megahertz gigahertz watts volts amps decibels pixels frames samples dollars cents euros people points steps pages words times items".split()
    unit_a = "km cm mm kg mg ml mph kHz MHz GHz Hz MB GB TB KB ms dB fps V W kW mA".split()
    big = lambda: R([f"{rng.randint(1, 999)},{rng.randint(0, 999):03d}", f"{rng.randint(1, 99)},{rng.randint(0, 999):03d}", f"{rng.randint(1, 9)},{rng.randint(0, 999):03d},{rng.randint(0, 999):03d}",
                     str(rng.randint(1000, 9999)), str(rng.randint(10000, 999999))])
    year = lambda: str(R([rng.randint(1900, 1999), rng.randint(2000, 2035), rng.randint(2000, 2035), rng.randint(1100, 1899)]))
    price = lambda: R([f"${rng.randint(1, 20)}", f"${rng.randint(1, 99)}.{rng.randint(0, 99):02d}", f"${rng.randint(1, 99)}.{R(['00', '50', '99', '95', '25', '75'])}", f"${rng.randint(100, 9999)}", f"${rng.randint(1, 99)},{rng.randint(0, 999):03d}"])
    clock_ = lambda: f"{rng.randint(1, 12)}:{R(['00', '15', '30', '45', f'{rng.randint(0, 59):02d}'])}" + R(["", "", " am", " pm", " a.m.", " p.m.", " AM", " PM", " o'clock"])
    date = lambda: R([f"{R(months)} {rng.randint(1, 31)}, {year()}", f"{R(months)} {rng.randint(1, 31)}", f"{R(days)}, {R(months)} {rng.randint(1, 31)}", f"{rng.randint(1, 31)} {R(months)} {year()}", f"{R(months)} {year()}"])
    nth = lambda: R([f"{k}{'th' if 10 < k % 100 < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(k % 10, 'th')}" for k in [rng.randint(1, 120)]])
    anyn = lambda: R([num, num, big, year, lambda: str(rng.randint(0, 100)), lambda: f"{rng.randint(0, 99)}.{rng.randint(0, 99)}"])()
    qty = lambda: f"{anyn()} {R(unit_w)}" if rng.random() < .7 else f"{rng.randint(1, 500)} {R(unit_a)}"
    tw = lambda: R(R([abbr, abbr, tech, tech2, tech2]))
    T2 = [
        lambda: f"The price is {price()}{R(['', ' and the meeting starts at ' + clock_(), ' per month', ' on ' + date(), ' instead of ' + price()])}.",
        lambda: f"{R(['It costs', 'You pay', 'I paid', 'She earned', 'They owe us', 'The total is', 'That will be', 'We spent'])} {price()}{R(['', ' for the ' + R(noun), ' every week', ', not ' + price(), ' plus tax'])}.",
        lambda: f"{R(['The train', 'The bus', 'The meeting', 'The show', 'Your flight', 'The call', 'The lesson'])} {R(['starts', 'leaves', 'ends', 'begins', 'arrives'])} at {clock_()}{R(['', ' on ' + date(), ' tomorrow', ' tonight'])}.",
        lambda: f"In {year()}, {R(['there were ' + big() + ' people living in the ' + R(noun), R(people) + ' moved to ' + R(places), 'the ' + R(noun) + ' was built', 'we sold ' + big() + ' ' + R(noun) + 's', 'prices rose by ' + str(rng.randint(2, 60)) + ' percent'])}.",
        lambda: f"{R(['Today is', 'It happened on', 'The deadline is', 'She was born on', 'We met on', 'Version ' + anyn() + ' came out on'])} {date()}.",
        lambda: f"From {year()} to {year()}{R([', nothing changed', ' he lived in ' + R(places), ', the number grew to ' + big()])}.",
        lambda: f"{R(['It is', 'The distance is', 'The file has', 'We need', 'The room is', 'Add', 'About', 'Exactly', 'Less than', 'More than'])} {qty()}{R(['', ' and ' + qty(), ' at ' + clock_(), ' long', ' away'])}.",
        lambda: f"{R(['The answer is', 'The result is', 'Room', 'Line', 'Page', 'Chapter', 'Port', 'Error code', 'Number', 'Flight', 'Platform', 'Version'])} {anyn()}.",
        lambda: f"{tw()} {R(['is a', 'is the', 'needs a', 'has no', 'uses the', 'supports', 'and'])} {R(['', R(adj) + ' '])}{tw()} {R(['for', 'of', 'with', 'without', 'in', 'over'])} {tw()}{R(['', ' and ' + tw()])}.",
        lambda: f"The {tw()} {tw()} {R(['sends', 'reads', 'writes', 'decodes', 'drops', 'needs', 'produces', 'handles', 'converts', 'encodes'])} {anyn()} {R(tech2)} {R(['per second', 'at once', 'in ' + qty(), 'on the ' + tw(), 'over ' + tw()])}.",
        lambda: f"{R(['Install', 'Start', 'Update', 'Open', 'Connect', 'Check', 'Build', 'Restart', 'Configure', 'Download', 'Compile', 'Debug'])} the {R(['', R(adj) + ' '])}{tw()} {R(['before', 'after', 'with', 'from', 'on', 'for'])} the {tw()}.",
        lambda: f"{R(['How', 'Why', 'When', 'Where'])} {R(['does', 'did', 'can', 'will'])} the {tw()} {R(verb)} the {tw()}?",
        lambda: f"{R(['Warning', 'Error', 'Notice', 'Info'])}: {R(['', 'the '])}{tw()} {R(['failed to connect to the ' + tw(), 'is not available', 'timed out after ' + qty(), 'returned ' + anyn(), 'has been updated to version ' + anyn(), 'is running at ' + qty(), 'could not be found'])}.",
        lambda: f"{', '.join(tw() for _ in range(rng.randint(2, 5)))}, and {tw()}.",
        lambda: f"{', '.join(anyn() for _ in range(rng.randint(2, 5)))}.",
        lambda: f"{', '.join(R(units + tens) for _ in range(rng.randint(3, 7))).capitalize()}{R([', go!', '.', ', stop.'])}",
        lambda: f"The {nth()} {R(noun)} {R(['was', 'is', 'will be'])} {R(adj)}{R(['', ' on the ' + nth() + ' of ' + R(months)])}.",
        lambda: f"{R(['Call', 'Dial', 'My number is', 'The code is', 'Press'])} {R([' '.join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 8))), f'{rng.randint(200, 999)}-{rng.randint(1000, 9999)}', f'{rng.randint(200, 999)}-{rng.randint(200, 999)}-{rng.randint(1000, 9999)}', str(rng.randint(100, 9999))])}.",
        lambda: f"{R(['Dr.', 'Mr.', 'Mrs.', 'Ms.', 'Prof.', 'St.'])} {R(people + names)} {R(['lives at', 'works at', 'left', 'visited', 'called'])} {rng.randint(1, 2000)} {R(names)} {R(['St.', 'Ave.', 'Road', 'Street', 'Avenue', 'Lane'])}",
        lambda: f"{num()} {R(['plus', 'minus', 'times', 'divided by', '+', '-'])} {num()} {R(['is', 'equals', '='])} {anyn()}.",
        lambda: f"{rng.randint(1, 100)}% of {R(['the ' + R(noun) + 's', big() + ' people', 'our ' + R(tech2)])} {R(['are', 'were'])} {R(adj)}, {R(['and', 'but'])} {rng.randint(1, 100)}.{rng.randint(0, 9)}% {R(['are', 'were'])} not.",
        lambda: f"{R(['Yes', 'No', 'Stop', 'Hello', 'Hi', 'Okay', 'Go', 'Wait', 'Thanks', 'Sure', 'Fine', 'Right', 'Done', 'Next', 'Ready', 'Why', 'What', 'Help', 'Sorry', 'Goodbye', 'Welcome', 'Start', 'Exit', 'One', 'Two', 'Ten'])}{R(['', '.', '!', '?'])}",
        lambda: f"{R(names)}'s {R(noun)} {R(['includes', 'needs', 'has'])} a {R(common)}, a {R(lower)} {R(common)}, and a {R(adj)} {R(common)}.",
        lambda: f"The {R(lower)} {R(['questioned', 'described', 'explained', 'ignored', 'admired', 'considered'])} the {R(lower)} of {R(lower)}, although {R(['nobody listened', 'it was late', 'no one knew', 'we had no time'])}.",
    ]
    phrases = """Good morning|Good evening|Good night|How are you|I am fine, thank you|What is your name|My name is {p}|Nice to meet you|See you tomorrow
    See you later|Thank you very much|You are welcome|Excuse me, please|I am sorry|No problem|Where are you from|What time is it|How much does it cost
    Could you help me, please|I don't understand|Please speak slowly|Have a nice day|Happy birthday|Merry Christmas|Happy New Year|Welcome to {c}
    The weather is nice today|It is raining in {c}|This is a test|This is only a test|Testing, one, two, three|Hello, world|The quick brown fox jumps over the lazy dog
    Once upon a time, there was a {n}|To be or not to be, that is the question|All is well that ends well|Time is money|Better late than never|Practice makes perfect
    Press any key to continue|Your call is important to us|Please hold the line|The battery is low|You have new messages|Turn left at the next corner
    Turn right after two hundred meters|Mind the gap|The doors are closing|Next stop, {c}|Connection lost|Download complete|The operation was successful
    Are you sure|I have no idea|Let me think about it|That sounds good|I would like a cup of {d}|Can I have some {d}, please|It is {h} o'clock""".replace("\n", "|").split("|")



    # third set: names, and numbers drawn so that every pair of digits stands in every position
    def log_int(top):
        return int(math.exp(rng.random() * math.log(top + 1)))
    comma = lambda n: f"{n:,}"
    digits_ = lambda n: "".join(str(rng.randint(0, 9)) for _ in range(n))
    first = lambda: R(people_first)
    last = lambda: R(people_last)
    full = lambda: R([lambda: f"{first()} {last()}", lambda: f"{first()} {last()}", lambda: f"{R(['Dr.', 'Mr.', 'Mrs.', 'Ms.', 'Prof.'])} {last()}", lambda: f"{first()} {R('ABCDEFGHJKLMNPRSTW')}. {last()}"])()
    city = lambda: R(R([cities, cities, places]))
    country = lambda: R(P.countries)
    place = lambda: R([city, city, country, lambda: R(P.regions)])()
    phone = lambda: R([lambda: f"{rng.randint(200, 999)}-{digits_(3)}-{digits_(4)}", lambda: f"{digits_(3)}-{digits_(4)}", lambda: f"1-800-{digits_(3)}-{digits_(4)}", lambda: " ".join(digits_(rng.randint(5, 11)))])()
    clock24 = lambda: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    frac = lambda: R(["1/2", "1/3", "2/3", "1/4", "3/4", "1/5", "2/5", "3/5", "4/5", "1/8", "3/8", "5/8", "7/8", "1/10"])
    mixedn = lambda: f"{rng.randint(1, 20)} {frac()}"
    decimal = lambda: f"{log_int(2000)}.{digits_(rng.randint(1, 3))}"
    percent = lambda: R([f"{rng.randint(0, 100)}%", f"{rng.randint(0, 99)}.{rng.randint(0, 9)}%", f"{rng.randint(1, 100)} percent"])
    version = lambda: R([f"{rng.randint(0, 25)}.{rng.randint(0, 40)}", f"{rng.randint(0, 12)}.{rng.randint(0, 30)}.{rng.randint(0, 30)}", f"{rng.randint(1, 9)}.{rng.randint(0, 99)}.{rng.randint(0, 9)}"])
    temp = lambda: f"{R(['', '', '-'])}{rng.randint(1, 45)}{R(['°C', '°F', ' degrees', ' degrees'])}"
    money = lambda: R(["$", "$", "$", "£", "€"]) + R([lambda: str(log_int(5000) + 1), lambda: f"{log_int(900)}.{rng.randint(1, 99):02d}", lambda: comma(1000 + log_int(900000)), lambda: f"{rng.randint(1, 99)}.{rng.randint(1, 9)} {R(['million', 'billion'])}", lambda: f"{comma(1000 + log_int(9000))}.{rng.randint(1, 99):02d}"])()
    units3 = "km cm mm kg mg g ml mph km/h kHz MHz GHz Hz MB GB TB ms dB fps V W kW kWh ft lb min °C m l".split()
    measure_ = lambda: f"{R([lambda: str(log_int(2000) + 1), lambda: decimal()])()} {R(units3)}"
    iso = lambda: f"{rng.randint(1950, 2035)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    ndate = lambda: R([lambda: f"{R(months)} {rng.randint(1, 31)}, {year()}", lambda: f"{rng.randint(1, 31)} {R(months)} {year()}", lambda: f"the {nth()} of {R(months)}", lambda: f"{R(months)} {rng.randint(1, 31)}", lambda: f"{R(days)}, {R(months)} {rng.randint(1, 31)}", iso])()
    code = lambda: R([lambda: R("ABCDEFGHJKLMNPRSTUVWXYZ") + str(rng.randint(1, 99)), lambda: str(rng.randint(1, 99)) + R("ABCDEFGH"), lambda: R("ABCDEFGHJKLMNPRSTUVWXYZ") + R("ABCDEFGHJKLMNPRSTUVWXYZ") + digits_(rng.randint(2, 4))])()
    letters = lambda n: ", ".join(R("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(n))
    lettnum = lambda n: ", ".join(R("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") for _ in range(n))
    halfday = lambda: str(rng.randint(1, 12)) + R(["", f":{rng.randint(0, 59):02d}"]) + R([" am", " pm", " a.m.", " p.m.", "am", "pm"])
    group = lambda: "-".join(digits_(4) for _ in range(rng.randint(2, 3)))
    thing = lambda: R([noun, tech])
    NUM = [
        lambda: f"{R(['Call me at', 'Please call', 'The number is', 'You can reach us at', 'Text', 'Her phone number is', 'For help, dial'])} {phone()}{R(['', ' today', ' and ask for ' + full(), ' after ' + clock_(), ' before ' + R(days)])}.",
        lambda: f"{R(['It costs', 'The total comes to', 'We paid', 'That is', 'They raised', 'He owes me', 'Tickets are', 'The rent is', 'The bill was'])} {money()}{R(['', ' a month', ' per ' + R(thing()), ', or ' + money() + ' with tax', ' for ' + str(log_int(200) + 2) + ' ' + R(thing()) + 's'])}.",
        lambda: f"{R(['The', 'Our', 'A'])} {R(adj)} {R(thing())} for {money()}?",
        lambda: f"{first()} was born on {ndate()} in {city()}.",
        lambda: f"{R(['On', 'Since', 'Before', 'After', 'Until'])} {ndate()}, {R(['the ' + R(thing()) + ' was ' + R(adj), full() + ' lived in ' + place(), 'nothing happened', 'the office stays closed', 'we counted ' + comma(log_int(99999)) + ' visitors'])}.",
        lambda: f"{R(['In', 'By', 'From', 'Around'])} {year()}, {R(['the population of ' + place() + ' reached ' + comma(1000 + log_int(9000000)), 'she had written ' + str(rng.randint(2, 60)) + ' books', 'prices in ' + place() + ' fell by ' + percent(), full() + ' became mayor of ' + city()])}.",
        lambda: f"The {R(['race', 'war', 'project', 'tour', 'trial', 'drought'])} lasted from {year()} to {year()}.",
        lambda: f"The {R(['train', 'bus', 'ferry', 'plane', 'coach', 'tram'])} {R(['leaves', 'arrives', 'departs', 'returns'])} at {R([clock24, clock_])()} {R(['from platform ' + str(rng.randint(1, 30)), 'from gate ' + code(), 'on ' + R(days), 'every day'])}.",
        lambda: f"{R(['Flight', 'Train', 'Room', 'Bus', 'Seat', 'Locker', 'Platform', 'Extension', 'Apartment', 'Line', 'Order', 'Invoice', 'Case'])} {R([code, lambda: str(log_int(9999) + 1), lambda: digits_(rng.randint(2, 6)), group])()} {R(['is ready', 'has been cancelled', 'is late', 'is free', 'was closed', 'leaves from ' + city(), 'belongs to ' + full(), 'has changed'])}.",
        lambda: f"{R(['The code is', 'Enter', 'Your PIN is', 'The serial number is', 'My account number is', 'The reference is'])} {R([lambda: digits_(rng.randint(3, 6)), group, code, lambda: lettnum(rng.randint(4, 7))])()}.",
        lambda: f"{R(['Spell it', 'It is spelled', 'The letters are', 'My plate reads', 'Press', 'The answer is'])} {letters(rng.randint(2, 7))}.",
        lambda: f"{R(['Add', 'Use', 'Mix in', 'You need', 'Cut off', 'Measure', 'Pour in'])} {R([mixedn, frac, measure_, lambda: str(rng.randint(2, 40))])()} {R(['cups of', 'inches of', 'spoons of', 'pounds of', 'pieces of', 'slices of'])} {R(['sugar', 'flour', 'butter', 'rope', 'wood', 'cheese', 'rice', 'paper', 'honey', 'cloth'])}.",
        lambda: f"{R(['The bridge', 'The tower', 'This cable', 'The parcel', 'The tank', 'The signal', 'Her bike', 'The fish', 'The engine'])} {R(['is', 'measures', 'weighs', 'reaches', 'needs', 'has'])} {measure_()}{R(['', ' and ' + measure_(), ', not ' + measure_()])}.",
        lambda: f"It was {temp()} in {city()}{R(['', ' and ' + temp() + ' in ' + city(), ' on ' + R(days), ' this morning', ', ' + str(rng.randint(2, 15)) + ' degrees below normal'])}.",
        lambda: f"{R([percent, frac])()} of {R(['the voters', 'our customers', 'all ' + R(noun) + 's', 'the water', 'the money', 'them'])} {R(['stayed', 'were lost', 'came from ' + place(), 'agreed', 'is gone', 'went to ' + full()])}.",
        lambda: f"{R(['Release', 'Version', 'Update to', 'Firmware', 'Kernel'])} {version()} {R(['fixes', 'breaks', 'adds', 'removes'])} {log_int(300) + 2} {R(tech2)}.",
        lambda: f"{R(['Upgrade', 'Install', 'We tested', 'It needs'])} {R(abbr)} {version()} {R(['or later', 'first', 'on ' + R(abbr), 'before ' + ndate()])}.",
        lambda: f"{R(['Chapter', 'Page', 'Section', 'Verse', 'Figure', 'Exercise', 'Lesson', 'Level', 'Gate', 'Floor'])} {log_int(900) + 1}{R(['', ' ' + R(['begins here', 'is missing', 'explains the ' + R(noun), 'comes next', 'is about ' + place()])])}.",
        lambda: f"The {R(['index', 'pound', 'share', 'price', 'rate', 'score', 'average'])} {R(['rose', 'fell', 'went', 'moved'])} from {R([decimal, lambda: comma(1000 + log_int(20000)), percent])()} to {R([decimal, lambda: comma(1000 + log_int(20000)), percent])()}.",
        lambda: f"{R(['She came', 'He finished', 'They were', 'My team ended', 'It ranked'])} {nth()} {R(['in the race', 'out of ' + str(rng.randint(20, 400)), 'for the ' + nth() + ' time', 'in ' + year()])}.",
        lambda: f"{R(['What is', 'How much is', 'Do you know'])} {log_int(500)} {R(['plus', 'minus', 'times', 'divided by'])} {rng.randint(2, 99)}?",
        lambda: f"{log_int(999) + 1} {R(['times', 'plus', 'minus', 'and', 'or', 'to', 'by'])} {log_int(999) + 1}{R(['', ' ' + R(['is', 'makes']) + ' ' + comma(log_int(99999))])}.",
        lambda: ", ".join(R([lambda: str(rng.randint(0, 99)), lambda: str(log_int(9999)), lambda: comma(1000 + log_int(99999))])() for _ in range(rng.randint(2, 7))) + ".",
        lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(2, 12))) + ".",
        lambda: f"{R([comma(1000 + log_int(99000000)), str(log_int(99999)), str(rng.randint(1, 99))])} {R(['people', 'soldiers', 'miles', 'birds', 'pages', 'houses', 'euros', 'stars', 'votes', 'letters', 'years', 'workers'])} {R(['were counted', 'went missing', 'are needed', 'came by ' + R(days), 'would be enough', 'in ' + year()])}.",
        lambda: f"{R(['Open', 'The shop is open', 'We meet', 'Come by', 'Lunch is served', 'Call between', 'Any time'])} {R([halfday(), clock24()])} {R(['to', 'and', 'or', 'until'])} {R([clock24(), clock_()])}.",
        lambda: f"{full()} lives at {log_int(9000) + 1} {R([last(), R(names), R(noun).capitalize(), nth()])} {R(['Street', 'Road', 'Avenue', 'Lane', 'Drive', 'St.', 'Ave.', 'Court'])}{R(['', ', ' + city()])}.",
        lambda: f"{R(['Route', 'Highway', 'Exit', 'Mile', 'Junction', 'Track', 'Channel', 'Studio', 'Unit', 'Area', 'Type', 'Size'])} {R([str(log_int(999) + 1), code()])}.",
    ]
    NAME = [
        lambda: f"{full()} {R(['met', 'called', 'married', 'thanked', 'taught', 'visited', 'interviewed', 'replaced'])} {full()} in {place()}.",
        lambda: f"{R(['My name is', 'This is', 'I am', 'Please welcome', 'Ask for', 'Please give a hand to', 'It was written by', 'We spoke with'])} {full()}{R(['', ' from ' + place(), ' and ' + full()])}.",
        lambda: f"{city()}, {city()} and {city()} {R(['are far apart', 'have airports', 'were on the list', 'took part', 'are twinned'])}.",
        lambda: f"{R(['The capital of', 'The map of', 'The president of', 'The football team of', 'The coast of', 'The climate of', 'The history of'])} {R([country(), R(P.regions)])} {R(['is', 'was', 'seems'])} {R(adj)}.",
        lambda: f"{first()} {R(['speaks', 'learns', 'teaches', 'translates from', 'is fluent in', 'writes in'])} {R(P.languages)} and {R(P.languages)}.",
        lambda: f"{R(['The', 'One', 'How much is the', 'She paid in'])} {R(P.currencies)} {R(['is used in ' + country(), 'fell today', 'against the ' + R(P.currencies), 'from ' + country()])}.",
        lambda: f"{R(['We flew from', 'The road leads from', 'They moved from', 'It is far from', 'He drove from'])} {place()} to {place()}{R(['', ' in ' + R(months), ' with ' + first(), ' and back to ' + place()])}.",
        lambda: f"{first()}, {first()} and {first()} {R(['are here', 'were late', 'live in ' + place(), 'work for ' + last()])}.",
        lambda: f"Has {full()} {R(['arrived', 'left ' + city(), 'answered', 'ever been to ' + place()])}?",
        lambda: f"{last()}'s {R(noun)} {R(['is in', 'came from', 'was sold in'])} {place()}.",
        lambda: f"{R(['Dear', 'Hello', 'Good morning', 'Thank you', 'Goodbye', 'Sorry'])} {R([first(), full()])}{R(['.', '!', ', welcome to ' + place() + '.', ', this is ' + first() + ' speaking.'])}",
        lambda: f"{R(names)}, {R(names)}, {R(names)} and {R(names)}.",
        lambda: f"{R(names)} {R(['and', 'or', 'with', 'near', 'after'])} {R(names)}.",
        lambda: f"{R(['A letter from', 'News from', 'The weather in', 'Welcome to', 'Next stop,', 'Greetings from', 'A flight to', 'The university of', 'The battle of'])} {place()}{R(['.', '.', '!', '?'])}",
    ]
    TALK = [
        lambda: f"{R(['Why', 'When', 'Where', 'How'])} {R(['do', 'did', 'will', 'can', 'should'])} {R(['you', 'they', 'we', 'I', first()])} {R(verb)} {R(['the', 'my', 'your', 'that'])} {R(thing())}?",
        lambda: f"{R(['Is', 'Was', 'Will', 'Could'])} {R(['this', 'that', 'it', 'your ' + R(noun)])} {R(['the', 'a', 'our', 'her'])} {R(adj)} {R(thing())}{R(['', ' or the ' + R(adj) + ' one', ' from ' + place()])}?",
        lambda: f"{R(['Okay', 'Sure', 'Well', 'All right', 'Of course', 'Great', 'Sorry', 'No', 'Yes', 'Right', 'Hmm', 'Oh'])}, {R(['I will', 'let us', 'please', 'you can', 'we should', 'do not', 'I would rather', 'let me'])} {R(verb)} {R(['it', 'that', 'the ' + R(thing()), 'your ' + R(thing())])} {R(adv)}.",
        lambda: f"{R(['Please', 'Now', 'Then', 'First', 'Finally', 'Never', 'Always', 'Do not', 'Just'])} {R(verb)} {R(['the', 'a', 'your', 'this'])} {R(adj)} {R(thing())}{R(['', ' and ' + R(verb) + ' the ' + R(thing()), ' before you ' + R(verb), ' at ' + clock_()])}{R(['.', '.', '!'])}",
        lambda: f"{R(['Connection', 'Download', 'Upload', 'Backup', 'Login', 'Update', 'Scan', 'Payment', 'Delivery', 'Recording'])} {R(['complete', 'failed', 'lost', 'started', 'paused', 'accepted', 'refused', 'at ' + percent()])}.",
        lambda: f"{R(['Welcome', 'Goodbye', 'Warning', 'Attention', 'Correct', 'Wrong', 'Careful', 'Hurry', 'Listen', 'Nothing', 'Perhaps', 'Exactly', 'Absolutely', 'Really', 'Congratulations', 'Never mind', 'Excuse me', 'Of course', 'Not yet', 'Come in', 'Well done'])}{R(['.', '!', '?', ''])}",
        lambda: f"{R(['I think', 'They say', 'He hopes', 'We know', 'Nobody knows', 'It seems', 'She told me', 'Someone said'])} {R(['that ', ''])}{R(['the', 'our', 'his'])} {R(thing())} {R(['is', 'was', 'will be', 'has been'])} {R(adj)}, {R(['but', 'and', 'because', 'so', 'although'])} {R(['I', 'we', 'they', 'you'])} {R(['never', 'always', 'can', 'should', 'must'])} {R(verb)} {R(['it', 'them', 'the ' + R(noun)])}.",
        lambda: f"{R(['There is', 'We need', 'I see', 'Here comes', 'Do you have', 'She wants', 'I would like'])} {R(['another', 'one more', 'the other', 'some kind of'])} {R(adj)} {R(thing())}{R(['.', '?'])}",
    ]
    def phrase():
        s = R(phrases).strip().format(p=first(), c=city(), n=R(noun), d=R(["coffee", "tea", "water", "milk", "juice", "soup"]), h=R(units[1:13]))
        return s + R([".", ".", "!", "?"] if s.split()[0] not in ("How", "What", "Where", "Could", "Can", "Are") else ["?"])
    TALK += [phrase, phrase]
    return dict(everyday=T, technical=T2, numbers=NUM, names=NAME, talk=TALK)

