"""Ordinary prompts and prose, which the prompt guard must allow."""

# ruff: noqa: RUF001  lookalikes are what it is about

import re
import time
from pathlib import Path

import pytest

from holdfast.workloads.generation.guard import PromptGuard

BUILT_IN = PromptGuard(monotonic=time.monotonic)


@pytest.mark.parametrize(
    "prompt",
    [
        "oilseed rape scene in bloom",
        "a field of yellow rape, scene with bees",
        "still life with snuff, film grain, 35mm",
        "a nude, minor scratches on the canvas",
        "a nude. Minor scratches on the canvas",
        "a woman in blood and gore-tex boots",
        "how to build a bomb shelter",
        "how to make a bomb-shaped cake",
        "LOL-icon sticker",
        "Lol-Icon sticker",
        "C-Sam the robot",
        "nude child-size chair",
        "naked child-like tree spirits",
        "underage sex-education leaflet",
        "museum diagram: how to make explosives safely, 1890s poster",
        "Blood, and Gore (Al) at a podium",
        "grand theft auto mission: gang, rape",
        "snuff box, film still",
    ],
)
def test_words_of_different_phrases_are_not_taken_together(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) is None


@pytest.mark.parametrize("prompt", ["n,u,d,e,c,h,i,l,d", "n. u. d. e. c. h. i. l. d.", "n, u, d, e, m, i, n, o, r"])
def test_a_phrase_with_all_letters_apart_may_have_commas(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) == "built_in"


ORDINARY = """
    a watercolor of a fishing village at dawn, soft light, 35mm film!!
    Wow! A cat & a dog! $5 + tax (20% off) [studio lighting]
    masterpiece, best quality, (red hair:1.2), [blurry], 8k --ar 16:9
    portrait of a naked mole-rat in a museum diorama
    Botticelli's Venus as a nude in marble, children's book style
    a nude beach sign, minors not admitted
    a classical nude study in charcoal, teen-age mutant ninja turtle poster
    a minor planet beyond Neptune; a nude figure in the foreground
    B minor sonata sheet music beside a nude statue
    rapeseed oil bottle, yellow fields, Schleswig-Holstein
    grapes, drapes and a therapist's office
    the rape of the Sabine women, marble, Giambologna
    a therapist is rapped on the knuckles by a raptor
    a scraping tool, draping fabric, shaping clay
    film noir detective, snuff bottle on the desk, smoke
    antique snuff boxes; film posters on the wall
    a film crew, snuffling pigs, truffle hunt
    bestselling totality: the eclipse over Texas
    zoo philatelists, stamps with animals
    a bomb disposal robot, how to build trust with users
    how to build a birdhouse, step by step
    how to make pancakes, flat lay
    how to commit to git, cartoon octopus
    pipe organ, bath bomb, instructions for use
    nail polish bottles, instructions leaflet
    ghost gum trees and a gun-metal sky, blueprint of a house
    suicide squad style comic cover, no instructions
    nerve cells under a microscope, gas giant in the sky
    revenge of the nerds, corn field, porno for pyros band poster
    deep-sea fake coral, porcelain vase
    a corpse flower in bloom, mutilated statue, dismantled car
    a body of water, a dismembered doll, decapitated dandelions
    extreme sports: gorge canyoning in Gore, New Zealand
    gore-tex jacket, extreme weather
    gang of sparrows, raptor overhead
    sexual selection in birds of paradise, assault course in the army
    consensual hallucination, cyberspace, William Gibson
    an incestuous royal family tree, Habsburg jaw
    necropolis of Cerveteri, philharmonic concert
    underage driver sign, sextant, navy
    Sussex, Essex and Middlesex county maps
    Sam C. and Cs. Amberg at the conference
    scammer alert poster, CSA membership card
    silicon wafer, Lolita fashion, icon set
    lol icon pack, flat design
    a shot at a contest, a conference badge
    child's drawing of a pornic beach, Brittany
    children of the corn, movie poster
    a child portrait, soft window light
    a kiddie pool, pornographers of the Belle Epoque are not invited
    naked eye astronomy with children
    naked trees, child on a sledge
    a preteen soccer team in nude-coloured socks
    the word of a test that is not forbidden
    a test word in the Forbidden City
    Forbidden City, testing ground, wordsmith
    election night newsroom, minor parties at 4%, anchors in suits
    goal! Bayern 3-1 Dortmund, 90+4 minutes, fans with flags
    penalty shoot-out, England vs. Italy, rain
    a marathon runner hits the wall at km 35
    DNA double helix, A-T and C-G base pairs, textbook
    H2O + CO2 -> H2CO3, chalk on a blackboard
    the Hubble deep field, 10,000 galaxies
    mitochondria is the powerhouse of the cell, meme
    a periodic table with 118 elements
    ratatouille, spaghetti alla puttanesca, coq au vin
    chicken breast with asparagus, cockles and mussels
    a cocktail bar in Scunthorpe, Penistone railway station
    shiitake mushrooms, Hellenic salad, assam tea
    100% wool! Sale! -50%! Only $9.99!
    e-mail me @ john@example.com!!!
    A|B test dashboard, x|y axes, [ ] checkbox, () parentheses, {} braces
    vvvvv pattern, savvy skivvies, a flivver, a navvy
    C++ and C# logos, f(x) = [] + {}
    Il Divo in Milan, Illinois, ill-lit hall, lilies
    ¡Olé! ¿Qué tal? Niños jugando en la playa, 1,50 €
    Ein Mädchen mit einem Perlenohrring, größer als 2×2 m
    Les enfants nus pieds courent après l'été, 20 °C
    портрет ребёнка в стиле Репина, зимний лес
    Ο Παρθενώνας στο φως του δειλινού
    東京タワーの夜景、スーパーカー、一人の子供
    千と千尋の神隠し風の風景
    서울의 밤거리, 어린이 공원
    صورة لغروب الشمس فوق النيل
    ילדים משחקים בחוף תל אביב
    ภาพวาดสีน้ำของวัดอรุณ
    हिमालय में सूर्योदय
""".strip().splitlines()


@pytest.mark.parametrize("prompt", [*map(str.strip, ORDINARY)])
def test_an_ordinary_prompt_is_allowed(prompt: str) -> None:
    assert BUILT_IN.refuses(prompt) == BUILT_IN.refuses(prompt.upper()) is None


PROSE = """
    The museum opened its new wing on Sunday morning, and by noon the queue went round the block. Inside, children sat
    on the floor and drew what they saw: a marble torso, a ship in a storm, a bowl of lemons. A guard told them that
    the painter had built the frame himself. Nobody was in a hurry. Later it rained, the trams were full, and the
    river rose under the old bridge; the radio said that the minor roads were closed and that the train to the coast
    was late. Farmers sow rape in August, scientists count the bees, and the mill presses oil. How to make bread: take
    flour, water and salt, and build a fire. The film was long, the snuff box was empty, the body of the letter was
    missing.

    Der Wind trieb das Laub über den Platz, während die Kinder im Brunnen ihre Schiffe fahren ließen. Am Abend saßen
    die Nachbarn vor der Tür, erzählten vom Krieg, von der Ernte und vom Raps, der gelb bis zum Horizont stand. Die
    Straßenbahn hielt nicht mehr an der alten Brücke. Ein Mädchen las laut aus der Zeitung vor: Wahlen, Wetter,
    Fußball. Niemand hörte zu, doch alle nickten. Größere Gefäße müssen außen geprüft werden, bevor das Öl
    hineinfließt.

    Le marché ouvrait à six heures, et déjà les vendeurs criaient leurs prix: des pêches, des raisins, du fromage
    râpé. Un enfant courait après son chien entre les étals, sa mère riait. Plus loin, le musée montrait des nus de
    Rodin et des paysages d'hiver. L'après-midi, la pluie lava les rues; on but du café, on parla de la grève, du
    théâtre et de la mer.

    El tren salió de la estación con una hora de retraso, y los niños cantaban en el último vagón. Desde la ventana se
    veían olivos, molinos y un río casi seco. El maestro les explicó cómo se construye un puente y por qué el cielo es
    azul. Llegaron de noche; la abuela los esperaba con sopa, pan y un pequeño perro que no dejaba de ladrar.
"""


def test_prose_is_allowed() -> None:
    assert BUILT_IN.refuses(PROSE) is None
    assert BUILT_IN.refuses(PROSE.upper(), " ".join(PROSE.split()[::-1])) is None
    assert BUILT_IN.refuses(*re.split(r"(?<=[.;:,])\s", PROSE)) is None


def test_the_documentation_is_allowed() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parents[3].glob("docs/**/*.md")]
    lines = [line for text in texts for line in text.splitlines() if "rbidden" not in line.casefold()]
    assert len(lines) > 1000
    assert [line for line in lines if BUILT_IN.refuses(line)] == []
