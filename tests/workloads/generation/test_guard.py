"""The guard of prompts: listed words are found in any spelling, and other words are not taken for them."""

# ruff: noqa: RUF001  lookalikes are what it is about

import re
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import holdfast.workloads.generation.guard as guard_package
from holdfast.workloads.generation.guard import PromptGuard
from holdfast.workloads.generation.guard.normalize import latin, without_marks
from holdfast.workloads.generation.guard.prefilter import folded
from holdfast.workloads.generation.guard.reading import COARSE, accepted, readings
from holdfast.workloads.generation.guard.terms import Terms

TEST_WORD = "forbidden-test-word"
SHORT = ("ass", "hell", "rape", "penis", "shit", "kill", "slit", "xxx", "bad egg", "c4", "ar 15", "hop", "anal", "sex")
Refuses = Callable[..., str | None]


@pytest.fixture
def refuses(tmp_path: Path) -> Callable[..., Refuses]:
    """A guard with these lists."""

    def make(*blocked: str, allowed: tuple[str, ...] = ()) -> Refuses:
        files = {"blocked.txt": blocked, "allowed.txt": allowed}
        for name, entries in files.items():
            (tmp_path / name).write_text("\n".join(entries), encoding="utf-8")
        return PromptGuard(*(str(tmp_path / name) for name in files), monotonic=time.monotonic).refuses

    return make


BUILT_IN = PromptGuard(monotonic=time.monotonic)


# -- spellings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        TEST_WORD,
        "a castle, forbidden test word, at dawn",
        "(Forbidden Test Word)",
        "FORBIDDEN-TEST-WORD",
        "fOrBIdDeN TesT wOrD",
        "forbiddentestword",
        "forbidden_test_word",
        "forbidden \n\n test\tword",
        "for bidden te st word",
        "f o r b i d d e n t e s t w o r d",
        "f-o-r-b-i-d-d-e-n t.e.s.t w*o*r*d",
        "f🔥o🔥r🔥b🔥i🔥d🔥d🔥e🔥n🔥 test word",
        "forbidden, test: word!",
        "forbiiiidden teeest wwword",
        "f0rb1dd3n t3st w0rd",
        "forb!dden te$t word!",
        "$forb!dden te$t word$",
        "forb|dden +e5+ word",
        "FORBlDDEN TEST WORD",
        "forbidden-test-word2",
        "fоrbіddеn tеѕt wоrd",
        "ΦΟΡ fοrβιddεη τεsτ wοrd",
        "ｆｏｒｂｉｄｄｅｎ　ｔｅｓｔ　ｗｏｒｄ",
        "𝐟𝐨𝐫𝐛𝐢𝐝𝐝𝐞𝐧 𝓽𝓮𝓼𝓽 𝖜𝖔𝖗𝖉",
        "ⓕⓞⓡⓑⓘⓓⓓⓔⓝ test 🅆🄾🅁🄳",
        "ꜰᴏʀʙɪᴅᴅᴇɴ ᴛᴇꜱᴛ ᴡᴏʀᴅ",
        "ƒøŕƀïđđëň ţéșŧ ŵóřð",
        "🇫🇴🇷🇧🇮🇩🇩🇪🇳 🅣🅔🅢🅣 🆆🅾🆁🅳",
        "fo\u200brb\u200did\u00adden\u2060 te\ufe0fst w\U000e0061ord",
        "\u202eforbidden\u202c test word",
        "f\u0336o\u0336r\u0336b\u0336i\u0336d\u0336d\u0336e\u0336n test word",
        "f\u094dorbi\u3099dden test word",
        "漢forbidden test word字",
        "🇩🇪forbidden test word🇩🇪",
    ],
)
def test_the_test_word_is_refused_in_any_spelling(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) == "built_in"


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        " \u200b\u200b ",
        "a watercolor of a castle",
        "a forbidden castle; the word of a test",
        "unforbidden-test-word",
        "forbidden-test-worded",
        "forbidden-test-wor",
        "forbiden-test-word",
        "the Al Gore library",
        "bare trees, naked branches, a child with a kite",
        "a nude by Rubens",
        "a wild flower bed, grapes and a therapist",
    ],
)
def test_other_prompts_are_allowed(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) is None


@pytest.mark.parametrize(
    "prompt",
    [
        "ASS",
        "a$$",
        "@ss!",
        "a.s.s",
        "a s s",
        "asssss",
        "h-e-l-l",
        "he11",
        "hel1",
        "HELl",
        "heIl",
        "r a p e",
        "ra-pe",
        "r4pe",
        "p e n i s",
        "sh!t!",
        "kiiiill",
        "x x x",
        "xxxxx",
        "badegg",
        "bad-egg",
        "b a d e g g",
        "bad   \n egg",
        "C-4",
        "AR-15",
        "ar 15",
        "hoooop",
        "5ex",
    ],
)
def test_short_words_are_found_in_other_spellings(refuses: Callable[..., Refuses], prompt: str) -> None:
    guard = refuses(*SHORT)
    assert guard(prompt) == guard(f"an {prompt}, in oil") == "blocklist"


@pytest.mark.parametrize(
    "prompt",
    [
        "classic bass, an assassin in the grass",
        "cl@ssic",
        "Scunthorpe, Essex and Middlesex",
        "he'll kill\u00adjoy, she’ll shell",
        "a grape, a therapist, a drape",
        "the pen is mightier",
        "use a pen. Is it red?",
        "as such, as s-shaped curves, a SS officer",
        "Kiel, silt, killer skills",
        "xx and x",
        "bad eggs, bade gg",
        "ca, c 5, c44x, C44, C45, dc4",
        "aris, ar, 150 ar 155",
        "hoop, hops, chop",
        "analysis, banal, canal",
        "a push it, hit",
        "sexton 6",
        "455 people, 4.0.455, 4 $ $",
        "hello there, shelling",
    ],
)
def test_short_words_are_not_found_in_other_words(refuses: Callable[..., Refuses], prompt: str) -> None:
    assert refuses(*SHORT)(prompt) is None


@pytest.mark.parametrize(
    ("entry", "refused", "allowed"),
    [
        ("запрещено", ["ЗАПРЕЩЕНО", "это запрещено!", "з а п р е щ е н о"], ["незапрещено", "запрет"]),
        ("Ναι", ["ΝΑΙ", "ναι", "Ναι"], ["ναια"]),
        ("Ծառ", ["ծառ", "ԾԱՌ"], ["ծառեր"]),
        ("色情", ["色情", "很多色情情报", "色 情", "ABC色情x"], ["色", "情色"]),
        ("バカ", ["このバカな", "ﾊﾞｶ"], ["ハカ"]),
        ("금지어", ["금지어를", "이 금지어"], ["금지"]),
        ("ต้องห้าม", ["คำต้องห้ามนี้"], ["ตอง"]),
        ("हिंसा", ["यह हिंसा है", "हिंसा।"], ["हंस", "अहिंसा"]),
        ("größe", ["GRÖSSE", "grosse", "gröẞe"], ["größer"]),
        ("ænima", ["AENIMA"], ["anima"]),
        ("Word!", ["word", "w0rd"], ["words"]),
        ("a$$hat", ["asshat", "A$$HAT"], ["ashat", "a hat"]),
    ],
)
def test_words_of_any_script_can_be_listed(
    refuses: Callable[..., Refuses], entry: str, refused: list[str], allowed: list[str]
) -> None:
    guard = refuses(entry)
    assert [text for text in refused if guard(text) != "blocklist"] == []
    assert [text for text in allowed if guard(text)] == []


@pytest.mark.parametrize(
    "prompt",
    [
        "forb!dden!test!word",
        "forb!dden! test word",
        "a forb!dden, test! word",
        "forb|dden|test|word",
        "f|o|r|b|!|d|d|e|n|t|e|s|t|w|o|r|d",
        "f+o+r+b+1+d+d+e+n+t+e+s+t+w+o+r+d",
        "forb!dden @ test @ word",
        "forb!b!dden test word",
        "!forb!dden! $test$ +word+",
        "wow! forb!dden + te$t + word, $5!",
        "forbidden1test1word",
        "forbidden 0 test 0 word",
        "ch11d p0rn",
        "sexua1ized ch1ld",
        "snuff f11m",
        "best1a1ity",
        "1o11con",
        "L0L1C0N",
        "n@ked 2 ch!ldren",
        "forbldden-test-word",
        "FORBLDDEN TEST WORD",
        "for6idden-test-word",
        "f()rbidden test w[]rd",
        "f{}rbidden-test-w()rd",
        "forbi|)|)en-test-wor|)",
        "forbidden-test-vvord",
        "FORBIDDEN-TEST-VVORD",
        "forbidden-test-\\/\\/ord",
        "forbidden-test-ⅴⅴord",
        "forbidden-test-words",
        "f.o.r.b.i.d.d.e.n t.e.s.t w.o.r.d.s",
        "child-porn-film, child-porn",
        "semi-nude child",
    ],
)
def test_symbols_are_letters_or_separators_each_for_itself(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) == BUILT_IN.refuses(f"Wow! {prompt}, in $ and € @ 5 + 5!") == "built_in"


@pytest.mark.parametrize("word", ["lolicon", "rape"])
def test_i_and_l_are_told_apart_in_short_words(refuses: Callable[..., Refuses], word: str) -> None:
    guard = refuses(word, "hell", "kill", "lice")
    assert [text for text in ("heil", "Kiil", "ilce", "llce", "a klii") if guard(text)] == []
    assert [text for text in ("he1l", "k!ll", "1ice", "|ice", "heIl") if not guard(text)] == []


@pytest.mark.parametrize(
    "prompt",
    [
        "forbidd℮n-t℮st-word",
        "fסrbidden-test-word",
        "fهrbidden-test-word",
        "fഠrbidden-test-word",
        "fဝrbidden-test-wဝrd",
        "f𐐄rbidden-test-w𐐬rd",
        "f𐊒rbidden-test-word",
        "foⲅbidden-test-word",
        "foꮁbidden-test-word",
        "forᏏidden-test-word",
        "forƄidden-test-word",
        "ꬵorbidden-test-word",
        "ẝorbidden-test-word",
        "forbidden-𐊗es𐊗-word",
        "w⓿rd forbidden test w⓿rd",
        "f❶rbidden f⓿rb➊dden test word",
        "ᖴOᖇᗷIᗪᗪEᑎ-TEᔕT-ᗯOᖇᗪ",
        "千ㄖ尺乃丨ᗪᗪ乇几 ㄒ乇丂ㄒ 山ㄖ尺ᗪ",
        "ᎦᎧᏒᏰᎥᎴᎴᏋᏁ ᏖᏋᏕᏖ ᏇᎧᏒᎴ",
        "ቻዐዪጌጎዕዕቿክ ፕቿነፕ ሠዐዪዕ",
        "f๏rbเdden test w๏rd",
        "ｷの尺乃ﾉりり乇刀-ｲ乇丂ｲ-Wの尺り",
        "ꎇꂦꋪꌃꀤꀸꀸꍟꈤ-꓄ꍟꌗ꓄-ꅏꂦꋪꀸ",
        "卄ㄖ山 ㄒㄖ 爪卂Ҝ乇 卂 卩丨卩乇 乃ㄖ爪乃",
        "ςђเlԁ ק๏гภ",
        "FФЯБIDDΞИ-ΓΞSΓ, ZФФPHILIД",
        "₣ØⱤ฿łĐĐɆ₦-₮Ɇ₴₮-₩ØⱤĐ",
        "forbidden・test・word",
        "f・o・r・b・i・d・d・e・n・t・e・s・t・w・o・r・d",
        "forbidden･test･word",
        "forbidden゠test゠word",
        "forbiddenーtestーword",
        "forbidden一test一word",
        "forbidden\u1173test\u1173word",
        "forbiddenㅡtestㅡword",
        "forbidden\u0640test\u0640word",
        "山forbidden-test-word一",
        "ch℮ck: 𝐬𝐧𝐮𝐟𝐟 film",
    ],
)
def test_letters_of_other_scripts_are_read_as_what_they_look_like(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) == "built_in"


def test_punctuation_of_all_scripts_separates_words() -> None:
    marks = [char for char in map(chr, range(sys.maxunicode)) if unicodedata.category(char)[0] in "PZ"]
    assert [ascii(char) for char in marks if not BUILT_IN.refuses(char.join(["a forbidden", "test", "word"]))] == []


def test_a_word_in_a_script_without_spaces_is_not_read_as_latin(refuses: Callable[..., Refuses]) -> None:
    guard = refuses("千山", "fw", "工人")
    assert guard("千山") == guard("看千山万水") == guard("工人们") == "blocklist"
    assert guard("人山人海") is None


def test_each_text_is_checked() -> None:
    assert BUILT_IN.refuses("a castle", "", TEST_WORD) == "built_in"
    assert BUILT_IN.refuses("forbidden", "test", "word") is None
    assert BUILT_IN.refuses() is None


# -- disguises and ordinary text ---------------------------------------------------------------------------------------

_ALIKE = """
    aα@4ａ𝐚ᴀáÂ bв8ʙ cсϲｃ dԁｄđᴅ eеε3ëÉ€ᴇ fｆꜰ𝓯 gɡ9ｇ hһｈʜ iіι1!|ï jјｊ kкκ lⅼ1|ｌł mмᴍ nпηńɴ oοо0öØᴏ pрρ
    qԛ rгʀřⓡ sѕ5$ꜱş tтτ7+ᴛ uυü vνѵ wѡ𝔀ᴡŵ xх yуү zᴢ
"""
LOOKALIKES = {alike[0]: alike for alike in _ALIKE.split()}
INVISIBLE = ["", "\u200b", "\u200d", "\u00ad", "\u2060", "\ufe0f", "\u202e", "\u0301", "\u0336", "\u034f", "\u3164"]
SEPARATORS = ["", "", " ", "-", "_", ".", "\n", "🔥", " * ", "...", "，", "　", "~~", "!", " @ ", "|", "+"]


@st.composite
def disguised(draw: st.DrawFn, word: str) -> str:
    text = ""
    for letter in filter(str.isalpha, word):
        spelled = [letter.upper(), *LOOKALIKES[letter]]
        text += draw(st.sampled_from(spelled)) * draw(st.integers(1, 3)) + draw(st.sampled_from(INVISIBLE))
        text += draw(st.sampled_from(SEPARATORS))
    return text


@given(
    disguised(TEST_WORD), st.sampled_from(["", "a castle, ", "「", "in "]), st.sampled_from(["", " at dawn", "!", "」"])
)
def test_a_disguised_word_is_refused(word: str, before: str, after: str) -> None:
    assert BUILT_IN.refuses(before + word + after) == "built_in"


LISTED = [
    line
    for line in Path(guard_package.__file__).with_name("blocklist.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
ASCII_ALIKE = {letter: [*filter(str.isascii, alike)] for letter, alike in LOOKALIKES.items()} | {
    "b": [*"b86"],
    "g": [*"g69"],
    "i": [*"il1!|"],
    "l": [*"lI1!|"],
    "o": ["o", "0", "()", "[]"],
    "w": ["w", "vv", "\\/\\/"],
}


@st.composite
def garbled(draw: st.DrawFn) -> str:
    """A listed phrase in ASCII, in a spelling that may be found or not."""
    text = ""
    for letter in draw(st.sampled_from(LISTED)):
        text += draw(st.sampled_from([letter, letter, *ASCII_ALIKE.get(letter, [letter])])) * draw(st.integers(1, 2))
        text += draw(st.sampled_from(["", "", "", "", "", " ", ", ", "-", "!", "$", "|", "0", "()", "q"]))
    return draw(st.sampled_from(["", "x", "! ", "a + "])) + text


@given(garbled())
@example("forb!dden!test!word")
@example("c!h|1+d p0rn")
@example("[]forbidden test word")
def test_what_the_quick_look_skips_is_in_no_reading(text: str) -> None:
    terms = Terms(LISTED)
    if any(span for reading in readings(text) for span in terms.spans(reading)):
        assert terms.beginnings.occur_in(folded(text))


def test_a_letter_and_its_spellings_are_one_coarse_letter() -> None:
    for letter in map(chr, range(97, 123)):
        spellings = accepted(letter, alike=True)
        assert {char.translate(COARSE) for char in spellings} == {letter.translate(COARSE)}


ENGLISH = [
    "a",
    "the",
    "an",
    "of",
    "in",
    "on",
    "at",
    "with",
    "and",
    "under",
    "over",
    "near",
    "big",
    "small",
    "red",
    "golden",
    "dark",
    "old",
    "young",
    "sleeping",
    "castle",
    "river",
    "mountain",
    "child",
    "children",
    "teacher",
    "soldier",
    "pen",
    "is",
    "as",
    "she",
    "he'll",
    "who're",
    "classic",
    "assassin",
    "grape",
    "therapist",
    "cocktail",
    "essex",
    "flower",
    "bed",
    "word",
    "test",
    "forbidden",
    "city",
    "gun",
    "barrel",
    "bomb",
    "shelter",
    "corpse",
    "flower",
    "rapeseed",
    "field",
    "scene",
    "how",
    "to",
    "build",
    "a",
    "house",
    "make",
    "explosive",
    "colors",
    "nude-colored",
    "lipstick",
    "bodies",
    "of",
    "water",
    "minor",
    "key",
    "blood",
    "orange",
    "gore-tex",
    "jacket",
    "suicide",
    "squad",
]


@given(st.lists(st.sampled_from(ENGLISH), max_size=60), st.sampled_from([" ", ", ", "\n"]))
@example(["nude", "child"], "")
def test_ordinary_text_is_allowed(words: list[str], space: str) -> None:
    text = space.join(words) if space else "nu-de colors"
    if not re.search(r"forbidden\W+test\W+word", text):
        assert BUILT_IN.refuses(text) is None


@given(st.text())
def test_normalized_text_stays_as_it_is(text: str) -> None:
    once = latin(without_marks(text).casefold())
    assert latin(without_marks(once).casefold()) == once


@given(st.text(max_size=200))
def test_any_text_can_be_checked(text: str) -> None:
    assert BUILT_IN.refuses(text) is None
    assert BUILT_IN.refuses(f"{text} {TEST_WORD} {text}") == "built_in"


def test_accents_of_latin_letters_are_removed_from_all_of_them() -> None:
    for code in range(0xC0, 0x250):
        name = re.fullmatch(r"LATIN (?:SMALL|CAPITAL) LETTER ([A-Z]) WITH .*", unicodedata.name(chr(code), ""))
        if name:
            assert latin(without_marks(chr(code))).casefold()[0] == name[1].lower(), chr(code)


# -- patterns and the allow-list ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["Agent 47", "agent  007", "ÁGENT 12", "аgent ۴۷", "a\u200bgent 1"])
def test_a_pattern_is_searched_in_the_normalized_text(refuses: Callable[..., Refuses], prompt: str) -> None:
    assert refuses(r"/\bagent\s+\d+/")(prompt) == "pattern"


def test_a_pattern_may_be_in_another_script(refuses: Callable[..., Refuses]) -> None:
    guard = refuses("/агент-[а-в]/")
    assert guard("АГЕНТ-б") == "pattern"
    assert guard("agent-b") is None


def test_a_match_inside_of_an_allowed_phrase_does_not_count(refuses: Callable[..., Refuses]) -> None:
    guard = refuses("cock", "sussex", r"/\d+ pounds/", allowed=("cock robin", "Sussex Pond", "40 pounds of flour"))
    allowed = ["Who killed Cock Robin?", "the sussex   pond", "40 pounds of flour", "cock-robin cock robin"]
    refused = [
        "a cock",
        "cock robin and a cock",
        "sussex",
        "40 pounds of gold",
        "140 pounds of flour",
        "cockrobin cock",
    ]
    assert [text for text in allowed if guard(text)] == []
    assert [text for text in refused if not guard(text)] == []


def test_an_allowed_phrase_must_be_spelled_as_it_is_listed(refuses: Callable[..., Refuses]) -> None:
    guard = refuses("manslaughter", allowed=("man's laughter",))
    assert guard("a man's laughter") is None
    assert guard("manslaughter") == guard("mans laughter") == "blocklist"


def test_the_built_in_list_can_be_overruled(refuses: Callable[..., Refuses]) -> None:
    guard = refuses(allowed=("the forbidden test word",))
    assert guard("the forbidden test word") is None
    assert guard("a forbidden test word") == "built_in"


# -- cost --------------------------------------------------------------------------------------------------------------


def calls(work: Callable[[], Any]) -> int:
    """Functions called, in Python and in C."""
    count = 0

    def called(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


HOSTILE = [
    "f ",
    "f o r b i d d e m ",
    "forbidden test wor ",
    "ab ",
    "s s a ",
    "$@!|",
    "1l|I",
    "fI",
    "Bl",
    "f\u0336",
    "漢字",
    "()",
    "f!0",
    "C-Sa",
    "forbidden! te$+ ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_cost_grows_with_the_length_of_the_text(refuses: Callable[..., Refuses], piece: str) -> None:
    guard = refuses("ab", "sa", "aa", "a a a b", "xxy", "字漢", "forbidden test war", allowed=("ab ab",))
    short, long = (piece * (size // len(piece)) for size in (1000, 4000))
    guard(short)
    assert calls(lambda: guard(long)) < 5 * calls(lambda: guard(short)) + 100
    assert calls(lambda: guard(long)) < 50 * 4000


def test_the_cost_hardly_grows_with_the_list(refuses: Callable[..., Refuses]) -> None:
    text = "an old painter watches the river under golden evening light with misty mountains " * 40
    few, many = (refuses(*(f"word{number:x}q" for number in range(size))) for size in (10, 5000))
    assert calls(lambda: many(text)) <= 2 * calls(lambda: few(text))
