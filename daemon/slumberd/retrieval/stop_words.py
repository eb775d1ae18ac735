"""List the words that a language needs in most sentences: they tell languages apart, not texts."""

# ruff: noqa: RUF001 # Cyrillic letters look like Latin ones

from __future__ import annotations

_ARTICLES_AND_PREPOSITIONS = (
    "a an the of in on at by for with about from to into over after before as and or but if then "
    "than so not no nor too very just also there here any some"
)
_PRONOUNS = (
    "i you he she it we they me him her us them my your his its our their mine yours this that "
    "these those who whom whose which what when where why how"
)
_VERBS = (
    "is am are was were be been being do does did doing done have has had having can could will "
    "would shall should may might must s t d ll m re ve dont"
)

STOP_WORDS: dict[str, str] = {
    "english": f"{_ARTICLES_AND_PREPOSITIONS} {_PRONOUNS} {_VERBS}",
    "german": (
        "der die das den dem des ein eine einen einem einer eines und oder aber wenn als wie dass "
        "daß ob weil nicht kein keine keinen auch nur noch schon sehr mal ja doch so da hier dort "
        "in im an am auf aus bei beim mit nach von vom vor zu zum zur für über unter um durch "
        "ich du er sie es wir ihr mich mir dich dir ihn ihm uns euch sich mein meine meinen meiner "
        "meinem dein deine deinen sein seine seinen ihre ihren unser unsere dieser diese dieses "
        "wer wen wem was wann wo warum welche welcher welches "
        "bin bist ist sind war waren wird werden wurde habe hast hat haben hatte kann können muss "
        "will wollen soll"
    ),
    "french": (
        "le la les l un une des du de d au aux et ou mais si que qu qui quoi où quand comment "
        "pourquoi quel quelle quels quelles ne n pas plus très aussi encore déjà y en dans sur "
        "sous avec sans pour par chez vers entre comme donc car "
        "je j tu il elle on nous vous ils elles me m te t se s lui leur moi toi mon ma mes ton ta "
        "tes son sa ses notre nos votre vos leurs ce c cet cette ces cela ça "
        "suis es est sommes êtes sont était étais été être ai as a avons avez ont avait avoir fait "
        "faire peut va vais"
    ),
    "spanish": (
        "el la los las lo un una unos unas de del al y e o u pero si que qué quien quién cuando "
        "cuándo donde dónde como cómo por para con sin en sobre entre desde hasta no ni muy más "
        "también ya porque cual cuál "
        "yo tú él ella nosotros ellos ellas usted ustedes me te se nos le les mi mis tu tus su sus "
        "nuestro nuestra este esta esto estos estas ese esa eso "
        "soy eres es somos son era fue ser estoy estás está están estar he has ha hemos han había "
        "hay tengo tiene hace hacer puede voy va"
    ),
    "italian": (
        "il lo la i gli le l un uno una di del della dei delle dello degli dell a al alla ai alle "
        "allo da dal dalla in nel nella nei con su sul sulla per tra fra e ed o ma se che chi cosa "
        "quando dove come perché quale non né più molto anche già ancora c ci ne "
        "io tu lui lei noi voi loro mi ti si vi me te mio mia miei mie tuo tua suo sua suoi nostro "
        "nostra questo questa questi queste quello quella "
        "sono sei è siamo siete era erano stato stata essere ho hai ha abbiamo avete hanno aveva "
        "avere fa fare può vado va"
    ),
    "portuguese": (
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela "
        "para com sem sobre entre até e ou mas se que quem quando onde como porque qual não nem "
        "mais muito também já "
        "eu tu você ele ela nós vocês eles elas me te lhe meu minha meus minhas teu tua seu sua "
        "seus suas nosso nossa este esta isto esse essa isso aquele "
        "sou és é somos são era foi ser estou está estão estava estar tenho tem têm tinha ter há "
        "fazer pode vou vai"
    ),
    "dutch": (
        "de het een en of maar als dan dat die dit deze niet geen ook nog al wel heel zeer er hier "
        "daar in op aan bij met naar van voor uit over onder door te om tot "
        "ik jij je hij zij ze we wij jullie u mij me hem haar ons hen hun mijn jouw zijn onze zich "
        "wie wat wanneer waar waarom welke hoe "
        "ben bent is was waren word wordt werd heb hebt heeft hebben had kan kunnen moet wil zal "
        "zou ga gaat"
    ),
    "swedish": (
        "en ett den det de dem och eller men om att som så inte ingen inget också bara redan "
        "mycket här där i på av för från till med vid hos under över efter utan åt "
        "jag du han hon vi ni mig dig honom henne oss er min mitt mina din ditt dina hans hennes "
        "sin sitt sina vår vårt våra deras denna detta dessa vem vad när var varför vilken hur "
        "är vara blir blev har hade ha kan kunde ska skulle vill måste får gör"
    ),
    "danish": (
        "en et den det de dem og eller men om at som så ikke ingen intet også kun bare allerede "
        "meget her der i på af for fra til med ved hos under over efter uden "
        "jeg du han hun vi mig dig ham hende os jer min mit mine din dit dine hans hendes sin sit "
        "sine vores deres denne dette disse hvem hvad hvornår hvor hvorfor hvilken hvordan "
        "er være bliver blev har havde have kan kunne skal skulle vil må får gør"
    ),
    "norwegian": (
        "en ei et den det de dem og eller men om at som så ikke ingen ingenting også bare allerede "
        "veldig mye her der i på av for fra til med ved hos under over etter uten "
        "jeg du han hun vi dere meg deg ham henne oss min mitt mine din ditt dine hans hennes sin "
        "sitt sine vår vårt våre deres denne dette disse hvem hva når hvor hvorfor hvilken hvordan "
        "er være blir ble har hadde ha kan kunne skal skulle vil må får gjør"
    ),
    "russian": (
        "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только "
        "ее её мне было вот от меня еще ещё нет о из ему теперь когда даже ну ли если уже или ни "
        "быть был была были него до вас нибудь вам ведь там потом себя ей они тут где есть надо "
        "для мы тебя их чем сам чтоб без чего раз тоже себе под будет кто этот того потому этого "
        "какой ним здесь этом мой моя мои моё твой наш почему при об это эта эти нас нам тебе"
    ),
}
"""The words of each language, with spaces between them."""
